package sandbox

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/jail"
	"github.com/rondo-rl/rondo/sandbox/internal/loopdisk"
)

// ErrNoRoom says that the folder of a sandbox's disk has no room for it now.
var ErrNoRoom = loopdisk.ErrNoRoom

// mountScratch mounts what holds all that a sandbox writes: its disk, or a tmpfs.
func mountScratch(place string, d *loopdisk.Disk, user uint32, size int64) error {
	if d != nil {
		mounted, err := d.Mount()
		if err != nil {
			return err
		}
		defer mounted.Close()
		return unix.MoveMount(int(mounted.Fd()), "", unix.AT_FDCWD, place, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	options := fmt.Sprintf("%s,uid=%d,gid=%d", jail.ScratchOptions(size), user, hostUser)
	if err := unix.Mount("tmpfs", place, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	return nil
}

// mounts are what the owner has mounted for the first process to take over: the sandbox's disk, and
// the workspace over its snapshot.
func (s *Sandbox) mounts() ([]*os.File, error) {
	var d *loopdisk.Disk
	if folder := s.spec.Disk; folder != "" {
		var err error
		if d, err = loopdisk.Open(folder, s.user, hostUser, s.spec.Limits.DiskBytes); err != nil {
			return nil, fmt.Errorf("disk of %d MiB: %w", s.spec.Limits.DiskBytes>>20, err)
		}
		defer d.Close() // what is mounted keeps it
	}
	if files := s.share(d); files != nil || d == nil {
		return files, nil
	}
	mounted, err := d.Mount()
	if err != nil {
		return nil, err
	}
	return []*os.File{mounted}, nil
}

// OnDisk reports whether what the sandbox writes lies on a disk of its own.
func (s *Sandbox) OnDisk() bool { return s.spec.Disk != "" }

// CheckDisk says why sandboxes with so many bytes of disk cannot have them in a folder of this
// machine; nil when they can. Room that others take now is not its matter.
func CheckDisk(folder string, size int64) error { return loopdisk.Check(folder, size) }
