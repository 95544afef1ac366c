package agent

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What a process costs the kernel beside its pages, which a control group would count.
const (
	// tablesFrom is the address space from which on page tables are worth looking at: they
	// are a 512th of it at most.
	tablesFrom = 128 << 20
	// freeFiles are the open files of a process that count as nothing; each further one counts
	// fileCost, half a pipe's buffer above the kernel's limit of a user's pipes.
	freeFiles = 64
	fileCost  = 4 << 10
)

// memory is what a process costs, in bytes: pages, page tables and open files. Pages of zeros that
// are only read are in none but the tables.
func (p process) memory() int64 {
	total := p.residentPages * int64(os.Getpagesize())
	folder := "/proc/" + strconv.Itoa(p.pid)
	if p.virtual > tablesFrom {
		total += pageTables(folder + "/status")
	}
	if info, err := os.Stat(folder + "/fd"); err == nil { // since Linux 6.2 its size is their number, before it is 0
		total += max(0, info.Size()-freeFiles) * fileCost
	}
	return total
}

func pageTables(status string) int64 {
	text, err := os.ReadFile(status)
	if err != nil {
		return 0
	}
	_, after, _ := bytes.Cut(text, []byte("VmPTE:"))
	fields := bytes.Fields(after[:min(len(after), 64)])
	if len(fields) == 0 {
		return 0
	}
	kilobytes, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return kilobytes << 10
}

// segment is one of System V's shared memory.
type segment struct {
	id       int
	size     int64 // in memory or swapped out
	attached int64
}

// remove removes the segment, when nobody uses it any more.
func (s segment) remove() { _, _ = unix.SysvShmCtl(s.id, unix.IPC_RMID, nil) }

// segments lists those of this process's namespace: key, id, mode, size, two processes, users, five
// times and owners, resident, swapped.
func segments() (found []segment) {
	text, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 16 || fields[0] == "key" {
			continue
		}
		number := func(i int) int64 { n, _ := strconv.ParseInt(fields[i], 10, 64); return n }
		found = append(found, segment{id: int(number(1)), size: number(14) + number(15), attached: number(6)})
	}
	return found
}

// The kernel's words for what it tells of sockets (linux/sock_diag.h, unix_diag.h, inet_diag.h).
const (
	diagByFamily  = 20
	unixShow      = 1 << 5
	unixMemory    = 5
	unixAnswer    = 16
	inetShow      = 1 << 6
	inetMemory    = 7
	inetAnswer    = 72
	receiveMemory = 0 // of the numbers in an answer
	sendMemory    = 2
)

// socketMemory is what is in the buffers of the sockets of this process's
// network namespace, in bytes.
func socketMemory() (total int64) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	// struct unix_diag_req: family, protocol, padding, states, inode, what to show, cookie.
	request := binary.NativeEndian.AppendUint32([]byte{unix.AF_UNIX, 0, 0, 0}, ^uint32(0))
	request = binary.NativeEndian.AppendUint32(append(request, 0, 0, 0, 0), unixShow)
	total = diagnosed(fd, append(request, make([]byte, 8)...), unixAnswer, unixMemory)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			// struct inet_diag_req_v2: family, protocol, what to show,
			// padding, states, a socket's id.
			request := binary.NativeEndian.AppendUint32([]byte{family, protocol, inetShow, 0}, ^uint32(0))
			total += diagnosed(fd, append(request, make([]byte, 48)...), inetAnswer, inetMemory)
		}
	}
	return total
}

// diagnosed sends one request and adds the buffers up in its answers, each of which has
// attributes behind its head.
func diagnosed(fd int, request []byte, head int, attribute uint16) (total int64) {
	message := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(request)))
	message = binary.NativeEndian.AppendUint16(message, diagByFamily)
	message = binary.NativeEndian.AppendUint16(message, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	message = append(append(message, make([]byte, 8)...), request...)
	if unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return 0
	}
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil || n < unix.SizeofNlMsghdr {
			return total
		}
		for rest := buffer[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			size, kind := int(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint16(rest[4:])
			if kind != diagByFamily || size < unix.SizeofNlMsghdr || size > len(rest) { // the end, or an error
				return total
			}
			if at := unix.SizeofNlMsghdr + head; at <= size {
				total += buffered(rest[at:size], attribute)
			}
			rest = rest[min(len(rest), aligned(size)):]
		}
	}
}

// buffered finds the attribute with the numbers of memory.
func buffered(attributes []byte, wanted uint16) int64 {
	for len(attributes) >= unix.SizeofNlAttr {
		size, kind := int(binary.NativeEndian.Uint16(attributes)), binary.NativeEndian.Uint16(attributes[2:])
		if size < unix.SizeofNlAttr || size > len(attributes) {
			return 0
		}
		if values := attributes[unix.SizeofNlAttr:size]; kind == wanted && len(values) >= 4*(sendMemory+1) {
			return int64(binary.NativeEndian.Uint32(values[4*receiveMemory:])) +
				int64(binary.NativeEndian.Uint32(values[4*sendMemory:]))
		}
		attributes = attributes[min(len(attributes), aligned(size)):]
	}
	return 0
}

func aligned(size int) int { return (size + 3) &^ 3 }
