package jail

import (
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// Landlock is a set of rules, not yet in force: what is below some folders may be read and
// run, below others written too, and everything else of the file system is out of reach, even
// of who may enter it otherwise.
type Landlock struct{ ruleset int }

const (
	readRights  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeRights = readRights | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_REFER
	deviceRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// Nobody may make devices.
	handledRights = writeRights | deviceRights | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	// Rights that a file, in contrast to a folder, can have.
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// Versions of the interface. Before the one with REFER, files could not be
// moved between folders at all.
const (
	abiRefer, abiTruncate, abiIoctl, abiScope = 2, 3, 5, 6
)

// Rules are what a Landlock allows. What is not there is left out.
type Rules struct {
	Read, Write, Devices []string
	// Scoped keeps signals and abstract sockets among those under the same rules.
	Scoped bool
}

// ErrNoLandlock says that the kernel has no Landlock, or one that is too old for the rules.
var ErrNoLandlock = errors.New("this kernel has no Landlock, or too old a one (Linux 6.12, with landlock among lsm=, has enough)")

// NewLandlock makes a set of rules. Paths are followed now, so the folders must be
// those of the finished root.
func NewLandlock(rules Rules) (*Landlock, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || abi < abiRefer || rules.Scoped && abi < abiScope {
		return nil, refused("use Landlock", ErrNoLandlock)
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handledRights}
	if abi < abiTruncate {
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi < abiIoctl {
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if rules.Scoped {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	// The kernel refuses fields that it does not know unless they are zero, so
	// the newest form fits all.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, refused("make Landlock rules", errno)
	}
	l := &Landlock{int(fd)}
	for _, part := range []struct {
		paths  []string
		rights uint64
	}{{rules.Read, readRights}, {rules.Write, writeRights}, {rules.Devices, deviceRights}} {
		for _, path := range part.paths {
			if err := l.add(path, part.rights&attr.Handled_access_fs); err != nil {
				return nil, refused("allow "+path+" by Landlock", errors.Join(err, unix.Close(l.ruleset)))
			}
		}
	}
	return l, nil
}

func (l *Landlock) add(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var found unix.Stat_t
	if err := unix.Fstat(fd, &found); err != nil {
		return err
	}
	if found.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	// The kernel's structure is packed: 12 bytes, where Go's has 16.
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(l.ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Restrict puts the calling thread, and all that it will start, under the rules for good;
// no_new_privs must be set. The goroutine is locked to the thread and must end with it.
// Nil rules restrict nothing.
func (l *Landlock) Restrict() error {
	if l == nil {
		return nil
	}
	runtime.LockOSThread()
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(l.ruleset), 0, 0); errno != 0 {
		return refused("restrict a thread by Landlock", errno)
	}
	return nil
}

// InsideRules are those of a sandbox with a root of its own, on top of what that shows: nothing is
// written but in its writable folders and those named, above all nothing below /proc.
func InsideRules(more []string) Rules {
	rules := Rules{Read: []string{"/"}, Write: slices.Clone(more), Devices: []string{"/dev"}}
	for _, folder := range writable {
		rules.Write = append(rules.Write, folder.target)
	}
	return rules
}

// OutsideRules are those of a sandbox that sees the host's root: of it the system folders,
// harmless files of /etc, harmless devices, the process table and what is shown besides may be
// read, and the private folder written.
func OutsideRules(private string, shown []string) Rules {
	rules := Rules{Read: slices.Concat(systemFolders, etcFolders, etcFiles, publicFiles, shown, []string{"/proc"}),
		Write: []string{private}, Scoped: true}
	for _, device := range wire.Devices {
		if device.Name != "tty" {
			rules.Devices = append(rules.Devices, "/dev/"+device.Name)
		}
	}
	return rules
}

// Files of /etc that everyone may read and programs look into; a sandbox with a
// root of its own has its own.
var publicFiles = []string{"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf"}
