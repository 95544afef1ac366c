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
	return SendDescriptors(conn, descriptors)
}

// SendDescriptors is SendFiles for descriptors that must stay as they are: a File makes its own
// wait when it is asked for it.
func SendDescriptors(conn *os.File, descriptors []int) error {
	var rights []byte
	if len(descriptors) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), []byte{byte(len(descriptors))}, rights, nil, unix.MSG_NOSIGNAL)
		return sent != unix.EAGAIN
	})
	if sent != nil {
		return os.NewSyscallError("sendmsg", sent)
	}
	return err
}

// MaxFiles is how many descriptors come at once at most: those of a shared workspace
// and the socket of a link.
const MaxFiles = SharedFiles + 1

// ReceiveFiles waits for the descriptors that SendFiles sends, at most MaxFiles. Programs do not
// inherit them. It answers io.EOF when the other side hung up.
func ReceiveFiles(conn *os.File) (descriptors []int, err error) {
	count, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*MaxFiles))
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
		sent, err := unix.ParseUnixRights(&m)
		if err != nil {
			CloseFiles(descriptors)
			return nil, err
		}
		descriptors = append(descriptors, sent...)
	}
	if len(descriptors) != int(count[0]) {
		CloseFiles(descriptors)
		return nil, fmt.Errorf("%w: %d descriptors of %d", ErrProtocol, len(descriptors), count[0])
	}
	return descriptors, nil
}

// CloseFiles closes descriptors that ReceiveFiles gave.
func CloseFiles(descriptors []int) {
	for _, fd := range descriptors {
		_ = unix.Close(fd)
	}
}
