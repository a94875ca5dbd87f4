//! Paths that try to get out, or to exhaust whoever resolves them.

use test_programs::{Checks, fails, holds, preopen};
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, ErrorCode, OpenFlags, PathFlags};

/// How many folders deep the deepest path goes.
const DEEP: usize = 200;
/// Links that each lead to the next, more than any system follows.
const CHAIN: usize = 100;

pub fn all(checks: &mut Checks, folder: &str) {
    let Ok(root) = preopen(folder) else {
        return checks
            .check("paths: a folder to work in", || Err(format!("{folder} is not preopened").into()));
    };
    out(checks, &root);
    long(checks, &root);
    links(checks, &root);
}

fn read(root: &Descriptor, path: &str) -> Result<Descriptor, ErrorCode> {
    root.open_at(PathFlags::SYMLINK_FOLLOW, path, OpenFlags::empty(), DescriptorFlags::READ)
}

fn out(checks: &mut Checks, root: &Descriptor) {
    checks.check("no path leads out", || {
        for path in [
            "..",
            "../",
            "../..",
            "../workspace",
            "/",
            "//",
            "/etc/passwd",
            "/workspace",
            "./../etc/passwd",
            "a/../../etc/passwd",
            ".//..//etc",
            "../../../../../../../../../../etc/passwd",
            "/proc/self/environ",
            "../credentials",
            "/credentials",
        ] {
            fails(read(root, path).map(drop), &[ErrorCode::NotPermitted, ErrorCode::NoEntry])?;
        }
        Ok(())
    });
    checks.check("no rename or link leads out", || {
        root.open_at(PathFlags::empty(), "bait", OpenFlags::CREATE, DescriptorFlags::WRITE)?;
        for path in ["../bait", "/bait", "../../bait", "x/../../bait"] {
            let denied = [ErrorCode::NotPermitted, ErrorCode::NoEntry];
            fails(root.rename_at("bait", root, path), &denied)?;
            fails(root.link_at(PathFlags::empty(), "bait", root, path), &denied)?;
        }
        root.unlink_file_at("bait").map_err(Into::into)
    });
    checks.check("the root itself stays", || {
        for path in [".", "./", "./."] {
            holds(root.remove_directory_at(path).is_err(), "the root was removed")?;
            holds(root.unlink_file_at(path).is_err(), "the root was unlinked")?;
            holds(root.rename_at(path, root, "moved").is_err(), "the root was renamed")?;
        }
        root.stat().map(drop).map_err(Into::into)
    });
}

fn long(checks: &mut Checks, root: &Descriptor) {
    checks.check("a name of 256 bytes is too long", || {
        let too_long = [ErrorCode::NameTooLong];
        fails(root.create_directory_at(&"x".repeat(256)), &too_long)?;
        fails(read(root, &"x".repeat(256)).map(drop), &too_long)?;
        root.create_directory_at(&"x".repeat(255))?;
        root.remove_directory_at(&"x".repeat(255)).map_err(Into::into)
    });
    checks.check("very long paths are refused", || {
        let refused = [ErrorCode::NameTooLong, ErrorCode::NoEntry];
        fails(read(root, &"x/".repeat(5_000)).map(drop), &refused)?;
        fails(read(root, &"x".repeat(1 << 20)).map(drop), &refused)?;
        fails(root.symlink_at(&"x/".repeat(50_000), "long-link"), &[ErrorCode::NameTooLong])
    });
    checks.check("a long path of dots costs little and leads nowhere else", || {
        holds(read(root, &"../".repeat(1_000_000)).is_err(), "it led somewhere")?;
        // Too long for some systems; where it is taken, it is the folder itself.
        match read(root, &"./".repeat(100_000)) {
            Ok(same) => holds(same.is_same_object(root), "it led to another folder"),
            Err(error) => fails::<(), _>(Err(error), &[ErrorCode::NameTooLong]),
        }
    });
    checks.check("deep folders can be made, and go", || {
        let flags = DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY;
        let open = |at: &Descriptor| at.open_at(PathFlags::empty(), "deep", OpenFlags::DIRECTORY, flags);
        root.create_directory_at("deep")?;
        let mut chain = vec![open(root)?];
        while let Some(last) = chain.last().filter(|_| chain.len() < DEEP) {
            last.create_directory_at("deep")?;
            let next = open(last)?;
            chain.push(next);
        }
        chain.pop();
        while let Some(last) = chain.pop() {
            last.remove_directory_at("deep")?;
        }
        root.remove_directory_at("deep").map_err(Into::into)
    });
}

fn links(checks: &mut Checks, root: &Descriptor) {
    checks.check("links in a circle end in an error", || {
        root.symlink_at("circle", "circle")?;
        fails(read(root, "circle").map(drop), &[ErrorCode::Loop])?;
        fails(read(root, "circle/x").map(drop), &[ErrorCode::Loop])?;
        root.unlink_file_at("circle").map_err(Into::into)
    });
    checks.check("links that double at each step end in an error", || {
        // Each names the next one twice: 2^100 steps for a resolver that counts depth alone.
        for number in 0..CHAIN {
            let next = number + 1;
            root.symlink_at(&format!("bomb-{next}/../bomb-{next}"), &format!("bomb-{number}"))?;
        }
        fails(
            read(root, "bomb-0").map(drop),
            &[ErrorCode::Loop, ErrorCode::NoEntry, ErrorCode::NameTooLong],
        )?;
        (0..CHAIN).try_for_each(|number| root.unlink_file_at(&format!("bomb-{number}"))).map_err(Into::into)
    });
    checks.check("links lead out nowhere", || {
        for (name, target) in [("up", ".."), ("far", "../../../../../../etc/passwd"), ("side", "../logs")] {
            root.symlink_at(target, name)?;
            fails(read(root, name).map(drop), &[ErrorCode::NotPermitted])?;
            let below = root.open_at(
                PathFlags::SYMLINK_FOLLOW,
                &format!("{name}/made"),
                OpenFlags::CREATE,
                DescriptorFlags::WRITE,
            );
            fails(below.map(drop), &[ErrorCode::NotPermitted])?;
            fails(root.create_directory_at(&format!("{name}/made")), &[ErrorCode::NotPermitted])?;
            root.unlink_file_at(name)?;
        }
        Ok(())
    });
    checks.check("a link swapped under an open folder changes nothing for it", || {
        root.create_directory_at("swap")?;
        let flags = DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY;
        let open = root.open_at(PathFlags::empty(), "swap", OpenFlags::DIRECTORY, flags)?;
        root.rename_at("swap", root, "swapped")?;
        root.symlink_at("..", "swap")?;
        open.create_directory_at("inside")?;
        root.stat_at(PathFlags::empty(), "swapped/inside")?;
        root.remove_directory_at("swapped/inside")?;
        root.unlink_file_at("swap")?;
        root.remove_directory_at("swapped").map_err(Into::into)
    });
}
