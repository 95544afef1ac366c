package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/loopdisk"
)

// An overlay that an ordinary user mounts, or root in a user namespace, cannot rename the folders
// of its lower layer. So a sandbox's overlay is mounted by its owner, where that is the host's
// root, and handed down as a mount that has no place.

// mounter runs functions on a thread with a mount namespace of its own: what is mounted there is
// seen by nobody else, and gone when the process ends, however it does.
var mounter = sync.OnceValues(func() (chan<- func(), error) {
	jobs, ready := make(chan func()), make(chan error)
	go func() {
		runtime.LockOSThread() // for good: no other goroutine may come to see these mounts
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			// What the host unmounts later must not stay mounted here.
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
		}
		ready <- err
		if err != nil {
			return
		}
		for job := range jobs {
			job()
		}
	}()
	return jobs, <-ready
})

// onMounter runs a function on the mounter's thread.
func onMounter(do func() error) error {
	jobs, err := mounter()
	if err != nil {
		return fmt.Errorf("make a mount namespace for overlays: %w", err)
	}
	done := make(chan error)
	jobs <- func() { done <- do() }
	return <-done
}

// layers are a sandbox's detached mounts: what can be written, and the workspace,
// whose changes lie on it.
type layers struct {
	scratch, workspace *os.File
}

func (l *layers) close() { l.scratch.Close(); l.workspace.Close() }

// Names in the folder of snapshots.
const (
	scratchPlace   = "scratch"   // where what can be written is mounted for a moment, in the mounter's namespace
	workspacePlace = "workspace" // the same of an overlay
	treeName       = "tree"
	baseName       = "base"
)

// mountLayers makes the mounts of one sandbox over an unpacked snapshot in the folder of
// snapshots, for a user of the host.
func mountLayers(dir, digest string, d *loopdisk.Disk, user uint32, diskBytes int64) (made *layers, err error) {
	err = onMounter(func() (err error) {
		made, err = mountHere(dir, digest, d, user, diskBytes)
		return err
	})
	return made, err
}

// mountHere works in the folder itself, as the options of an overlay can hold no other path safely.
func mountHere(dir, digest string, d *loopdisk.Disk, user uint32, diskBytes int64) (made *layers, err error) {
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Chdir("/")) }()
	if err := mountScratch(scratchPlace, d, user, diskBytes); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Unmount(scratchPlace, unix.MNT_DETACH)) }()
	upper, work := filepath.Join(scratchPlace, ".upper"), filepath.Join(scratchPlace, ".work")
	err = errors.Join(os.Mkdir(upper, 0o755), os.Chmod(upper, 0o755),
		os.Chown(upper, int(user), hostUser), os.Mkdir(work, 0o700))
	if err != nil {
		return nil, err
	}
	// redirect_dir: folders can be renamed. xino=off: numbers of files are those of the snapshot.
	// volatile: nothing is synced, as all of it ends with the sandbox.
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on,metacopy=off,index=off,xino=off,volatile",
		filepath.Join(digest, treeName), upper, work)
	if err := unix.Mount("overlay", workspacePlace, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, fmt.Errorf("mount an overlay: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(workspacePlace, unix.MNT_DETACH)) }()
	scratch, err := detached(scratchPlace)
	if err != nil {
		return nil, err
	}
	workspace, err := detached(workspacePlace)
	if err != nil {
		return nil, errors.Join(err, scratch.Close())
	}
	return &layers{scratch, workspace}, nil
}

func detached(place string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, place, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "clone the mount of", Path: place, Err: err}
	}
	return os.NewFile(uintptr(fd), place), nil
}

// share mounts the workspace over its snapshot, where that is possible.
func (s *Sandbox) share(d *loopdisk.Disk) []*os.File {
	snapshot := s.spec.Snapshot
	if snapshot == nil || snapshot.from == nil || snapshot.from.role != s.spec.Role || s.private != "" ||
		slices.Contains(writable, s.spec.Workdir) {
		return nil
	}
	files, err := snapshot.mount(d, s.spec.Limits.DiskBytes)
	if err != nil {
		return nil // a kernel, or a container, that refuses gets a copy; FSMode tells
	}
	s.shared, s.release = true, snapshot.hold()
	return files
}
