package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// writeFiles fills /etc: copies of the host's harmless files and our own users and name service.
func writeFiles(files map[string][]byte) error {
	own := map[string]string{
		"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"/etc/group":         "root:x:0:\nnogroup:x:65534:\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"/etc/resolv.conf":   "",
	}
	for path, content := range own {
		files[path] = []byte(content)
	}
	if err := os.MkdirAll("/etc", 0o755); err != nil {
		return err
	}
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// setName names the host, also in /etc, but in an image's, which is not ours to write.
func (r *Root) setName(name string) error {
	name = hostname(name)
	if err := unix.Sethostname([]byte(name)); err != nil || !r.ownEtc {
		return err
	}
	if err := os.WriteFile("/etc/hostname", []byte(name+"\n"), 0o644); err != nil {
		return err
	}
	return os.WriteFile("/etc/hosts", []byte("127.0.0.1 localhost\n::1 localhost\n127.0.0.1 "+name+"\n"), 0o644)
}

// hostname keeps of a sandbox's name what a host name may hold.
func hostname(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, name)
	clean = strings.Trim(clean[:min(len(clean), 63)], "-")
	if clean == "" {
		return "sandbox"
	}
	return clean
}

// makeScratch mounts the one writable, size-limited file system, a tmpfs or a disk of the
// sandbox's own, and shows its folders in their places, the workspace after the usual ones, as it
// may lie inside one of them.
func makeScratch(boot wire.Boot) error {
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return err
	}
	if err := mountScratch(boot); err != nil {
		return fmt.Errorf("mount what can be written: %w", err)
	}
	for _, folder := range writable {
		if err := show(folder.target, folder.mode); err != nil {
			return err
		}
	}
	if err := showWorkspace(boot); err != nil {
		return err
	}
	for _, target := range boot.ReadOnly {
		if err := show(target, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// ScratchOptions are those of the writable tmpfs.
func ScratchOptions(diskBytes int64) string {
	return fmt.Sprintf("size=%d,nr_inodes=%d,mode=755", diskBytes, max(diskBytes/bytesPerInode, 1024))
}

func mountScratch(boot wire.Boot) error {
	if !boot.Scratch {
		return unix.Mount("tmpfs", scratch, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ScratchOptions(boot.DiskBytes))
	}
	fd := boot.Files[wire.ScratchFile]
	defer unix.Close(fd)
	return unix.MoveMount(fd, "", unix.AT_FDCWD, scratch, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// showWorkspace makes the workspace, empty or over a snapshot.
func showWorkspace(boot wire.Boot) error {
	if !boot.Shared() {
		return show(boot.Workdir, 0o755)
	}
	fd := boot.Files[wire.WorkspaceFile]
	defer unix.Close(fd)
	if err := mountPoint(boot.Workdir, true); err != nil {
		return fmt.Errorf("make %s: %w", boot.Workdir, err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, boot.Workdir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", boot.Workdir, err)
	}
	return nil
}

// show makes a folder on the scratch file system and binds it to its place.
func show(target string, mode fs.FileMode) error {
	source := scratchPath(target)
	if err := os.Mkdir(source, 0o755); errors.Is(err, fs.ErrExist) {
		return nil // the workspace is one of the usual folders
	} else if err != nil {
		return err
	}
	if err := os.Chmod(source, mode); err != nil {
		return err
	}
	if err := mountPoint(target, true); err != nil {
		return fmt.Errorf("make %s: %w", target, err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}

func scratchPath(target string) string {
	return scratch + "/" + url.PathEscape(target)
}

// mountDevices mounts device files that are this sandbox's alone, if there are any.
func mountDevices(fd int) error {
	if fd < 0 {
		return nil
	}
	defer unix.Close(fd)
	if err := mountPoint("/dev", true); err != nil {
		return err
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, "/dev", unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// lockDevices makes them read-only, which lets programs write to a device and not to its folder.
func (r *Root) lockDevices() error {
	if !r.ownDevices {
		return nil // they are on the root
	}
	return setReadOnly("/dev", 0)
}

func makeDevices() error {
	links := map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2", "/dev/ptmx": "pts/ptmx",
	}
	for name, target := range links {
		if err := os.Symlink(target, name); err != nil {
			return err
		}
	}
	if err := os.Mkdir("/dev/pts", 0o755); err != nil {
		return err
	}
	err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
		"newinstance,ptmxmode=0666,mode=0620")
	if err != nil {
		return fmt.Errorf("mount devpts: %w", err)
	}
	return nil
}

// overlay shows a writable view of a read-only tree, its changes on the scratch file system. Where
// the kernel has no overlay for ordinary users the tree is copied, which costs its size in memory.
func overlay(index int, v view) error {
	layers := fmt.Sprintf("%s/.overlay-%d", scratch, index)
	for _, name := range []string{"", "/lower", "/upper", "/work"} {
		if err := os.Mkdir(layers+name, 0o755); err != nil {
			return err
		}
	}
	if err := unix.MoveMount(v.fd, "", unix.AT_FDCWD, layers+"/lower", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	if err := mountPoint(v.target, true); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work,userxattr", layers, layers, layers)
	err := unix.Mount("overlay", v.target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
	if err == nil {
		return nil
	}
	if copyErr := os.CopyFS(layers+"/upper", os.DirFS(layers+"/lower")); copyErr != nil {
		return fmt.Errorf("overlay: %w; copy instead: %w", err, copyErr)
	}
	return unix.Mount(layers+"/upper", v.target, "", unix.MS_BIND, "")
}

// lockProc forbids nested user namespaces, then all of the kernel's settings: some of those of the
// network and ipc namespaces are open to the sandbox's root even without capabilities.
func lockProc() error {
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return fmt.Errorf("forbid nested user namespaces: %w", err)
	}
	if err := unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("lock /proc/sys: %w", err)
	}
	return setReadOnly("/proc/sys", unix.AT_RECURSIVE)
}

// raiseLoopback brings lo up: tests listen on localhost.
func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// Lock makes the folder at target, one of Boot.ReadOnly, read-only for everyone in the sandbox.
func Lock(target string) error { return setReadOnly(target, 0) }
