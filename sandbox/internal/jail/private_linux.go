package jail

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Locks, watches and times belong to an inode. Two sandboxes that see the same inode of the host
// can talk by them, and watch each other. So a sandbox sees the host's files through an overlay
// without a writable layer, which has inodes of its own. Pages in memory stay shared: how long a
// first read of a file takes still tells whether somebody has read it before.

// Places on the root, while a private view is made.
const (
	privatePlace = "/.private"
	privateTree  = privatePlace + "/tree"  // the host's tree
	privateEmpty = privatePlace + "/empty" // a second layer: the kernel asks for two where none can be written
	privateShown = privatePlace + "/shown" // what both give
)

// mountPrivate mounts a view at its target on inodes of the sandbox's own. Where the kernel
// refuses that, as for a tree in which the host has mounted something, the target shows the host's
// inodes, and shared names it.
func (r *Root) mountPrivate(v view) error {
	own, err := privateMount(v.folder, v.name)
	if err != nil {
		r.shared = append(r.shared, v.target)
		own = v.fd
	} else {
		defer unix.Close(own)
	}
	return unix.MoveMount(own, "", unix.AT_FDCWD, v.target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// privateMount makes a detached mount of a file or folder of a tree, or with an empty name of the
// whole tree, which is a detached mount, too.
func privateMount(tree int, name string) (fd int, err error) {
	for _, place := range []string{privatePlace, privateTree, privateEmpty, privateShown} {
		if err := os.Mkdir(place, 0o755); err != nil {
			return -1, err
		}
		defer func() { err = errors.Join(err, os.Remove(place)) }()
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, privateTree, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return -1, err
	}
	defer func() { err = errors.Join(err, unix.Unmount(privateTree, unix.MNT_DETACH)) }()
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("overlay", privateShown, "overlay", flags,
		"lowerdir="+privateTree+":"+privateEmpty+",xino=off"); err != nil {
		return -1, os.NewSyscallError("mount an overlay", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(privateShown, unix.MNT_DETACH)) }()
	return unix.OpenTree(unix.AT_FDCWD, filepath.Join(privateShown, name), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}
