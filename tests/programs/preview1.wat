;; A core module of preview 1, as old toolchains make it: it writes a line to standard output, makes
;; the file `preview1.txt` in the first preopened folder, and ends with the status 7. Statuses from
;; 101 on say which call failed.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "hello from preview 1\n")
  (data (i32.const 32) "preview1.txt")
  ;; an iovec: the 21 bytes at 0
  (data (i32.const 64) "\00\00\00\00\15\00\00\00")

  (func $check (param $errno i32) (param $status i32)
    (if (local.get $errno) (then (call $proc_exit (local.get $status)))))

  (func (export "_start")
    ;; fd_write(stdout, iovec at 64, 1, written at 80)
    (call $check
      (call $fd_write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 80))
      (i32.const 101))
    ;; path_open(3, follow, "preview1.txt", creat, rights: fd_write, none, no flags, opened at 84)
    (call $check
      (call $path_open (i32.const 3) (i32.const 1) (i32.const 32) (i32.const 12) (i32.const 1)
        (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 84))
      (i32.const 102))
    (call $check
      (call $fd_write (i32.load (i32.const 84)) (i32.const 64) (i32.const 1) (i32.const 80))
      (i32.const 103))
    (call $check (call $fd_close (i32.load (i32.const 84))) (i32.const 104))
    (call $proc_exit (i32.const 7))))
