// Package loopdisk gives file systems of a bounded size on the disk of a folder. Each lies in a
// file that has no name, so it goes with its last user, however that ends, and that is allocated as
// a whole, so that no write to it fails for want of room outside.
package loopdisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNoRoom says that the folder's file system has no room for another one now.
var ErrNoRoom = errors.New("no room for a sandbox's disk")

// Disk is a loop device over such a file. It goes when it is closed and nothing of it is mounted.
type Disk struct{ device *os.File }

// Close lets go of the device. What is mounted keeps it. nil has nothing to let go of.
func (d *Disk) Close() {
	if d != nil {
		d.device.Close()
	}
}

// Open makes a file system of so many bytes, whose root belongs to a user and a group. It takes
// root, loop devices and mke2fs.
func Open(folder string, user, group uint32, size int64) (*Disk, error) {
	if err := ownsFiles(folder); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(folder, unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file without a name: %w", err)
	}
	defer file.Close() // the device has it
	for {
		err = unix.Fallocate(int(file.Fd()), 0, 0, size)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.ENOSPC) {
		return nil, fmt.Errorf("%w: %s has no %d MiB left", ErrNoRoom, folder, size>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes in %s: %w", size, folder, err)
	}
	if err := format(file, user, group); err != nil {
		return nil, err
	}
	return attach(file)
}

// ownsFiles refuses a folder in memory, which a disk is there to spare.
func ownsFiles(folder string) error {
	var found unix.Statfs_t
	if err := unix.Statfs(folder, &found); err != nil {
		return &os.PathError{Op: "statfs", Path: folder, Err: err}
	}
	if found.Type == unix.TMPFS_MAGIC || found.Type == unix.RAMFS_MAGIC {
		return fmt.Errorf("%s lies in memory: name a folder on a disk", folder)
	}
	return nil
}

// bytesPerDiskInode makes tables of inodes 1.6 % of a disk.
const bytesPerDiskInode = 16384

func format(file *os.File, user, group uint32) error {
	program, err := exec.LookPath("mke2fs")
	if err != nil { // services often have no PATH with the system's own programs
		program = "/sbin/mke2fs"
	}
	// Without a journal, and with tables that are not written beforehand: all of
	// it ends with the sandbox.
	features := fmt.Sprintf("nodiscard,lazy_itable_init=1,root_owner=%d:%d", user, group)
	cmd := exec.Command(program, "-q", "-F", "-t", "ext4", "-O", "^has_journal,^resize_inode", "-m", "0", "-b", "4096",
		"-i", strconv.Itoa(bytesPerDiskInode), "-E", features, "/proc/self/fd/3")
	cmd.Env, cmd.ExtraFiles = []string{}, []*os.File{file}
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make an ext4 file system (mke2fs of e2fsprogs): %w: %.200s", err,
			strings.TrimSpace(string(said)))
	}
	return nil
}

// loopTries bounds how often another process may take the free loop device
// that this one was told of.
const loopTries = 100

// attach gives a file a loop device.
func attach(file *os.File) (*Disk, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("ask for a loop device: %w", err)
	}
	defer control.Close()
	for range loopTries {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("ask for a loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("open a loop device: %w", err)
		}
		// Direct: what a sandbox wrote is in the host's memory once, as the sandbox's own.
		err = unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{
			Fd: uint32(file.Fd()), Size: 4096, Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR |
				unix.LO_FLAGS_DIRECT_IO},
		})
		if err == nil {
			return &Disk{device}, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("set up a loop device: %w", err)
		}
	}
	return nil, fmt.Errorf("set up a loop device: others took %d of them first", loopTries)
}

// Mount mounts the disk's file system in no place.
func (d *Disk) Mount() (*os.File, error) {
	context, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount a sandbox's disk: %w", err)
	}
	defer unix.Close(context)
	err = unix.FsconfigSetString(context, "source", d.device.Name())
	// Nothing has to survive the machine, so a flush inside is none of the host's disk.
	for _, option := range [][2]string{{"barrier", "0"}, {"errors", "remount-ro"}} {
		err = errors.Join(err, unix.FsconfigSetString(context, option[0], option[1]))
	}
	if err = errors.Join(err, unix.FsconfigSetFlag(context, "noinit_itable"),
		unix.FsconfigCreate(context)); err != nil {
		return nil, fmt.Errorf("mount a sandbox's disk: %w", err)
	}
	fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, fmt.Errorf("mount a sandbox's disk: %w", err)
	}
	return os.NewFile(uintptr(fd), d.device.Name()), nil
}

// Check says why a folder of this machine can have no file system of so many bytes; nil when it
// can. Room that others take now is not its matter.
func Check(folder string, size int64) error {
	err := try(folder)
	if err != nil {
		return err
	}
	var found unix.Statfs_t
	if err := unix.Statfs(folder, &found); err != nil {
		return &os.PathError{Op: "statfs", Path: folder, Err: err}
	}
	if has := int64(found.Blocks) * found.Bsize; size > has {
		return fmt.Errorf("the file system of %s has %d MiB", folder, has>>20)
	}
	return nil
}

var worked sync.Map // by folder

// try mounts a small disk, until that has worked once in a folder.
func try(folder string) error {
	if _, done := worked.Load(folder); done {
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("workspaces on disk need root and loop devices")
	}
	const size = 4 << 20
	d, err := Open(folder, 0, 0, size)
	if err == nil {
		defer d.Close()
		var mounted *os.File
		if mounted, err = d.Mount(); err == nil {
			mounted.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("workspaces on disk need root, loop devices and mke2fs: %w", err)
	}
	worked.Store(folder, true)
	return nil
}
