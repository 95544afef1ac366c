package sandbox

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// newDevices makes a detached mount with the device files of one sandbox, for a user of the host.
// The host's own files have inodes that all sandboxes would see: one could lock a device, and
// another find it locked. It takes the host's root, and the right to make devices.
func newDevices(user uint32) (mount *os.File, err error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	for key, value := range map[string]string{"size": "64k", "nr_inodes": "64", "mode": "755"} {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return nil, os.NewSyscallError("fsconfig "+key, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	mount = os.NewFile(uintptr(fd), "devices")
	for _, device := range wire.Devices {
		err = errors.Join(err, unix.Mknodat(fd, device.Name, unix.S_IFCHR|0o666,
			int(unix.Mkdev(device.Major, device.Minor))),
			unix.Fchmodat(fd, device.Name, 0o666, 0)) // whatever the umask is
	}
	if err = errors.Join(err, unix.Fchownat(fd, "", int(user), hostUser, unix.AT_EMPTY_PATH)); err != nil {
		return nil, errors.Join(err, mount.Close())
	}
	return mount, nil
}
