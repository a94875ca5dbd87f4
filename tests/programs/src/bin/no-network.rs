//! Without a grant there is no network: each way out answers with an error and not with a trap.

use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::process::ExitCode;

use test_programs::{Checks, fails, holds};
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::{ErrorCode, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress};
use wasip2::sockets::tcp_create_socket::create_tcp_socket;
use wasip2::sockets::udp_create_socket::create_udp_socket;

const REFUSED: [ErrorCode; 2] = [ErrorCode::AccessDenied, ErrorCode::NotSupported];
const LOCAL: IpSocketAddress = IpSocketAddress::Ipv4(Ipv4SocketAddress { port: 9, address: (127, 0, 0, 1) });

fn main() -> ExitCode {
    let mut checks = Checks::new();
    checks.check("tcp connects nowhere", || {
        let network = instance_network();
        let outcome = create_tcp_socket(IpAddressFamily::Ipv4).and_then(|socket| {
            socket.start_connect(&network, LOCAL)?;
            socket.subscribe().block();
            socket.finish_connect().map(drop)
        });
        fails(outcome, &REFUSED)
    });
    checks.check("tcp listens nowhere", || {
        let network = instance_network();
        let outcome = create_tcp_socket(IpAddressFamily::Ipv4).and_then(|socket| {
            socket.start_bind(&network, LOCAL)?;
            socket.finish_bind()
        });
        fails(outcome, &REFUSED)
    });
    checks.check("udp is bound nowhere", || {
        let network = instance_network();
        let outcome = create_udp_socket(IpAddressFamily::Ipv4).and_then(|socket| {
            socket.start_bind(&network, LOCAL)?;
            socket.finish_bind()
        });
        fails(outcome, &REFUSED)
    });
    checks.check("no name is resolved", || {
        let network = instance_network();
        let outcome = resolve_addresses(&network, "example.com").and_then(|stream| {
            stream.subscribe().block();
            stream.resolve_next_address().map(drop)
        });
        let refused = [ErrorCode::AccessDenied, ErrorCode::NotSupported, ErrorCode::PermanentResolverFailure];
        fails(outcome, &refused)
    });
    checks.check("std sees errors as well", || {
        holds(TcpStream::connect("127.0.0.1:9").is_err(), "a connection was made")?;
        holds(TcpListener::bind("127.0.0.1:0").is_err(), "a port was opened")?;
        holds(UdpSocket::bind("127.0.0.1:0").is_err(), "a socket was bound")?;
        holds(("example.com", 80).to_socket_addrs().is_err(), "a name was resolved")
    });
    checks.finish()
}
