package agent

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// waitingProxied bounds connections that the owner has not accepted.
const waitingProxied = 64

// offerProxy listens on the sandbox's loopback and hands the listening socket to the owner, who
// accepts what connects there. A socket stays in the network namespace in which it was made, so the
// sandbox gets nothing of the host: no route, no address, no descriptor.
func offerProxy(owner *os.File) error {
	defer owner.Close()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(socket)
	if err := unix.Bind(socket, &unix.SockaddrInet4{Port: wire.ProxyPort, Addr: wire.ProxyHost}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(socket, waitingProxied); err != nil {
		return os.NewSyscallError("listen", err)
	}
	return wire.SendDescriptors(owner, []int{socket})
}
