package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// ProxyListener accepts what the sandbox's programs connect to at ProxyAddress; nil without
// Spec.Proxy. It is closed with the sandbox. Connections that were accepted are the caller's to
// close: they hold the sandbox's network namespace.
func (s *Sandbox) ProxyListener() net.Listener { return s.proxy }

// proxySockets is the pair over which the first process hands its listening socket out.
func proxySockets() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the way of the proxy's socket: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "proxy"), os.NewFile(uintptr(pair[1]), "proxy"), nil
}

// proxied boots the sandbox with a listening socket of its network namespace, where its
// description asks for one.
func (s *Sandbox) proxied(boot wire.Boot, files []*os.File, start func(wire.Boot, []*os.File) error) error {
	if !s.spec.Proxy {
		return start(boot, files)
	}
	ours, theirs, err := proxySockets()
	if err != nil {
		return err
	}
	defer ours.Close()
	boot.Proxy = true
	err = start(boot, append(slices.Clone(files), theirs))
	theirs.Close()
	if err != nil {
		return err
	}
	// It was sent before the sandbox answered that it stands, and so before
	// anything untrusted ran there.
	_ = ours.SetReadDeadline(time.Now().Add(operationTime))
	descriptors, err := wire.ReceiveFiles(ours)
	if err != nil || len(descriptors) != 1 {
		wire.CloseFiles(descriptors)
		return fmt.Errorf("take the proxy's socket: %w", errors.Join(wire.ErrProtocol, err))
	}
	socket := os.NewFile(uintptr(descriptors[0]), "proxy")
	defer socket.Close()
	s.proxy, err = net.FileListener(socket)
	if err != nil {
		return fmt.Errorf("take the proxy's socket: %w", err)
	}
	return nil
}
