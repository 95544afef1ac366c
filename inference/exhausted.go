package inference

import (
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
)

// exhausted are the errors of system calls by which this machine has nothing
// left to send a request with.
var exhausted = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EAGAIN}

// Exhausted reports whether a request failed by this machine, which has no descriptors, memory or
// ports left for it. It says nothing of the server.
func (f *Failure) Exhausted() bool {
	var name *net.DNSError
	if errors.As(f.Err, &name) { // it keeps the text of its cause alone
		return slices.ContainsFunc(exhausted[:4], func(errno syscall.Errno) bool {
			return strings.Contains(strings.ToLower(name.Err), errno.Error())
		})
	}
	var errno syscall.Errno
	if !errors.As(f.Err, &errno) {
		return false
	}
	return slices.Contains(exhausted, errno) || errno == syscall.EADDRNOTAVAIL && dialled4(f.Err)
}

// dialled4 reports whether an error is of a connection by IPv4. By IPv6 a machine without that has
// no address to assign, however many ports there are.
func dialled4(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return false
	}
	to, ok := op.Addr.(*net.TCPAddr)
	return ok && to.IP.To4() != nil
}
