package wire

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// SendFiles hands descriptors over, which come ahead of a sandbox's description.
func SendFiles(conn *os.File, files []*os.File) error {
	descriptors := make([]int, len(files))
	for i, file := range files {
		descriptors[i] = int(file.Fd())
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), []byte{byte(len(files))}, rights, nil, unix.MSG_NOSIGNAL)
		return sent != unix.EAGAIN
	})
	if sent != nil {
		return os.NewSyscallError("sendmsg", sent)
	}
	return err
}

// ReceiveFiles waits for what SendFiles sends: nothing, or the descriptors of a shared workspace, which programs do not inherit.
// It answers io.EOF when the owner hung up.
func ReceiveFiles(conn *os.File) (descriptors []int, err error) {
	count, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*SharedFiles))
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	n, size := 0, 0
	var received error
	err = raw.Read(func(fd uintptr) bool {
		n, size, _, _, received = unix.Recvmsg(int(fd), count, rights, unix.MSG_CMSG_CLOEXEC)
		return received != unix.EAGAIN
	})
	if err = errors.Join(err, os.NewSyscallError("recvmsg", received)); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if descriptors, err = unix.ParseUnixRights(&m); err != nil {
			return nil, err
		}
	}
	if len(descriptors) != int(count[0]) || len(descriptors) != 0 && len(descriptors) != SharedFiles {
		return nil, fmt.Errorf("%w: %d descriptors of %d", ErrProtocol, len(descriptors), count[0])
	}
	return descriptors, nil
}
