// Package jail turns the process that it runs in, the first of new namespaces, into the init
// of a sandbox: a fresh root with read-only views of the host's system folders, then no way
// back (see Build and Seal).
package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// Refusal says at which step the kernel, or the host's layout, refused the sandbox.
type Refusal struct {
	Step string
	Err  error
}

func (r *Refusal) Error() string { return r.Step + ": " + r.Err.Error() }

// Unwrap returns wire.ErrRefused and the system's error.
func (r *Refusal) Unwrap() []error { return []error{wire.ErrRefused, r.Err} }

func refused(step string, err error) error {
	if err == nil {
		return nil
	}
	return &Refusal{Step: step, Err: err}
}

// Folders of the host that programs need. What is a symbolic link on the host (as /bin on most
// systems) becomes the same link.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"}

// The part of /etc that programs need and that tells nothing of the host's
// users, services and secrets.
var (
	etcFolders = []string{"/etc/alternatives", "/etc/ld.so.conf.d", "/etc/ssl/certs", "/etc/perl", "/etc/terminfo"}
	etcFiles   = []string{"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/localtime", "/etc/mime.types", "/etc/protocols",
		"/etc/services", "/etc/os-release"}
)

// Writable folders besides the workspace; all lie on the one size-limited file system.
var writable = []struct {
	target string
	mode   fs.FileMode
}{
	{"/tmp", 0o777 | fs.ModeSticky},
	{"/var/tmp", 0o777 | fs.ModeSticky},
	{"/dev/shm", 0o777 | fs.ModeSticky},
	{"/root", 0o700},
	{"/run", 0o755},
	{"/logs", 0o755},
}

const (
	// Mounts on the root tmpfs are few and small: folders to mount on, links, and
	// copies of files of /etc.
	rootOptions = "size=4m,nr_inodes=4096,mode=755"
	// Commands see one another but not init, whose memory killer's score and the like
	// they could otherwise write.
	procOptions = "hidepid=2"
	// One inode per 4 KiB of disk lets a tree of tiny files fill the disk
	// before it runs out of inodes.
	bytesPerInode = 4096
	maxEtcFile    = 1 << 20
	// scratch is where the writable file system lies until its folders are mounted in their places.
	scratch = "/.scratch"
	// base is where the new root is first mounted: any folder that every system has, as it is
	// hidden for an instant only.
	base = "/usr"
)

// view is one detached clone of a part of the host's tree, waiting for its place in the new root.
type view struct {
	fd     int
	target string
	isDir  bool
	device bool
	link   string
	lower  bool // lower layer of an overlay
	// folder is another clone, of the folder that holds the file called name; with an empty name
	// of the view's own folder.
	folder int
	name   string
}

// Root is the root of a sandbox that is not known yet.
type Root struct {
	mounts     []view   // what belongs on its writable folders
	ownEtc     bool     // and not an image's
	ownDevices bool     // and not the host's
	shared     []string // what is shown on the host's own inodes
}

// Shared lists what of the host a complete root shows on inodes that other sandboxes see, too.
func (r *Root) Shared() []string { return r.shared }

// Prepare gives the calling process, pid 1 of new user, mount, pid, network, ipc and uts
// namespaces, its own root, as far as it is the same for all sandboxes that see the same of the
// host. All paths of the host are opened first, while the process may still read what its owner
// may; from pivot_root on, names resolve inside only. Devices is a mount of device files for this
// sandbox alone, or negative for the host's.
func Prepare(host wire.Host, devices int) (*Root, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, refused("make the mounts private", err)
	}
	system, files, err := collectSystem(host.Root, devices < 0)
	if err != nil {
		return nil, err
	}
	mounts, err := collectMounts(host.Mounts)
	if err != nil {
		return nil, err
	}
	if home, ok, err := imageHome(host.Root); err != nil {
		return nil, err
	} else if ok {
		mounts = append(mounts, home)
	}
	if err := becomeRoot(host.SwitchUser); err != nil {
		return nil, err
	}
	if err := enterNewRoot(); err != nil {
		return nil, err
	}
	root := &Root{mounts: mounts, ownEtc: host.Root == "", ownDevices: devices >= 0}
	return root, build(
		func() error { return writeFiles(files) },
		func() error { return mountDevices(devices) },
		func() error { return root.mountViews(system) },
		makeDevices,
		maskProc,
		raiseLoopback,
	)
}

// Complete makes the root that of a sandbox.
func (r *Root) Complete(boot wire.Boot) error {
	return build(
		func() error { return r.setName(boot.Name) },
		func() error { return makeScratch(boot) },
		func() error { return r.mountViews(r.mounts) },
		func() error { return unix.Unmount(scratch, unix.MNT_DETACH) },
		func() error { return os.Remove(scratch) },
		lockProc,
		func() error { return setReadOnly("/", 0) },
		r.lockDevices,
	)
}

func build(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return refused("build the root", err)
		}
	}
	return nil
}

// collectSystem opens what every sandbox sees of the host, or of an image.
func collectSystem(root string, hostDevices bool) ([]view, map[string][]byte, error) {
	folders := slices.Concat(systemFolders, etcFolders)
	if root != "" {
		var err error
		if folders, err = imageFolders(root); err != nil {
			return nil, nil, err
		}
	}
	var views []view
	for _, folder := range folders {
		v, err := open(root+folder, folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		views = append(views, v)
	}
	for _, device := range wire.Devices {
		if !hostDevices {
			break
		}
		v, err := open("/dev/"+device.Name, "/dev/"+device.Name)
		if err != nil {
			return nil, nil, err
		}
		views = append(views, v)
	}
	files := map[string][]byte{}
	if root != "" {
		return views, files, nil // its /etc is its own
	}
	for _, name := range etcFiles {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && info.Size() <= maxEtcFile {
			files[name], _ = os.ReadFile(name) // not readable is as good as not there
		}
	}
	return views, files, nil
}

// collectMounts opens what this sandbox sees besides, parents before what is in them.
func collectMounts(mounts []wire.Mount) ([]view, error) {
	var views []view
	sorted := slices.SortedFunc(slices.Values(mounts),
		func(a, b wire.Mount) int { return strings.Compare(a.Target, b.Target) })
	for _, m := range sorted {
		source, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.Source, err)
		}
		v, err := open(source, m.Target)
		if err != nil {
			return nil, err
		}
		v.lower = m.Overlay
		views = append(views, v)
	}
	return views, nil
}

// open clones the tree at source, with all that is mounted below, read-only.
func open(source, target string) (view, error) {
	info, err := os.Lstat(source)
	if err != nil {
		return view{}, fmt.Errorf("mount %s: %w", source, err)
	}
	v := view{target: target, isDir: info.IsDir(), device: info.Mode()&fs.ModeDevice != 0, fd: -1, folder: -1}
	if info.Mode()&fs.ModeSymlink != 0 {
		link, err := os.Readlink(source)
		v.link = strings.TrimPrefix(link, "/") // of a top-level folder: the same place, seen from the root
		return v, refused("read link "+source, err)
	}
	if v.fd, err = clone(source, v.device); err != nil || v.device {
		return v, err
	}
	if !v.isDir {
		source, v.name = filepath.Split(source)
	}
	v.folder, err = clone(source, false)
	return v, err
}

// clone makes a detached clone of the mounts at a path, with all that is mounted below, of which
// only devices can be written to.
func clone(source string, device bool) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fd, refused("clone the mount of "+source+" (open_tree, Linux 5.2)", err)
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if device { // of a read-only one the content can be written, and the times cannot
		attributes.Attr_set = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attributes)
	return fd, refused("make the mount of "+source+" read-only (mount_setattr, Linux 5.12)", err)
}

// becomeRoot gives up the host's root, under which the process was started to open its
// mounts, for the mapped user.
func becomeRoot(switchUser bool) error {
	if !switchUser {
		return nil
	}
	if err := syscall.Setgroups(nil); err != nil {
		return refused("drop the supplementary groups", err)
	}
	if err := syscall.Setresgid(0, 0, 0); err != nil {
		return refused("become the sandbox's group", err)
	}
	if err := syscall.Setresuid(0, 0, 0); err != nil {
		return refused("become the sandbox's user", err)
	}
	// Changing the user cleared the wish to die with the owner.
	return refused("set the parent-death signal", unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
}

// enterNewRoot makes an empty tmpfs the root. /proc must be mounted while the host's is still in
// sight: the kernel asks for that.
func enterNewRoot() error {
	if err := unix.Mount("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, rootOptions); err != nil {
		return refused("mount a tmpfs", err)
	}
	if err := os.Mkdir(base+"/proc", 0o555); err != nil {
		return refused("make /proc", err)
	}
	if err := unix.Mount("proc", base+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		procOptions); err != nil {
		return refused("mount proc", err)
	}
	if err := os.Chdir(base); err != nil {
		return refused("enter the new root", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return refused("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return refused("detach the host's root", err)
	}
	return refused("enter the new root", os.Chdir("/"))
}

// mountViews mounts every view where it belongs.
func (r *Root) mountViews(views []view) error {
	for i, v := range views {
		if err := r.mountView(i, v); err != nil {
			return fmt.Errorf("mount on %s: %w", v.target, err)
		}
	}
	return nil
}

func (r *Root) mountView(index int, v view) error {
	if v.link != "" {
		return os.Symlink(v.link, v.target)
	}
	defer unix.Close(v.fd)
	defer unix.Close(v.folder)
	if v.lower {
		return overlay(index, v)
	}
	if err := mountPoint(v.target, v.isDir); err != nil {
		return err
	}
	if !v.device {
		return r.mountPrivate(v)
	}
	r.shared = append(r.shared, v.target)
	return unix.MoveMount(v.fd, "", unix.AT_FDCWD, v.target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// mountPoint makes the folder or file that a mount covers.
func mountPoint(target string, isDir bool) error {
	dir := target
	if !isDir {
		dir = filepath.Dir(target)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%w (a mount inside a read-only system folder needs an existing place)", err)
	}
	if isDir {
		return nil
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// setReadOnly locks one mount, or with unix.AT_RECURSIVE all below it.
func setReadOnly(path string, flags uint) error {
	return unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}
