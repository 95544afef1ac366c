package forgetful

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// forever: names and attributes change through the mount alone, so the kernel
// may keep what it has read.
const forever = time.Hour

// Mount shows the disk in a folder until unmount is called. Who is not root needs the
// program fusermount3 for that.
func Mount(d *Disk, folder string) (unmount func() error, err error) {
	root := os.Geteuid() == 0
	if root {
		// The library lets programs that are started meanwhile, and later, inherit the device. One
		// of them that waits for an answer would keep the file system alive without a server, and
		// wait for ever. fusermount3 gives it to nobody else.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
	}
	timeout := forever
	_, err = fs.Mount(folder, &node{disk: d, inode: d.root}, &fs.Options{
		EntryTimeout: &timeout, AttrTimeout: &timeout,
		RootStableAttr: &fs.StableAttr{Ino: d.root.number, Mode: fuse.S_IFDIR},
		MountOptions: fuse.MountOptions{DirectMountStrict: root, FsName: "forgetful",
			Name: "forgetful", MaxWrite: 1 << 20},
	})
	if err != nil {
		return nil, fmt.Errorf("mount a FUSE file system at %s, which takes /dev/fuse, and root or the package fuse3: %w", folder, err)
	}
	// The library's own way waits until the kernel has let go of the file system, which is when the
	// last of other mount namespaces has: sandboxes that were being made meanwhile, for example.
	if !root {
		return func() error { return exec.Command("fusermount3", "-u", "-z", folder).Run() }, nil
	}
	unmount = func() error { return syscall.Unmount(folder, syscall.MNT_DETACH) }
	if err := closeOnExec(); err != nil {
		return nil, errors.Join(err, unmount())
	}
	return unmount, nil
}

// closeOnExec keeps open devices of FUSE from programs that this process starts.
func closeOnExec() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || name != "/dev/fuse" {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		syscall.CloseOnExec(fd)
	}
	return nil
}

// write lets a change happen, unless the disk refuses it.
func (d *Disk) write(change func() syscall.Errno) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.readOnly {
		return syscall.EROFS
	}
	return change()
}

// sync brings an inode to the disk, which may take its time.
func (d *Disk) sync(n *inode) syscall.Errno {
	d.mu.Lock()
	slow, name := d.slow, ""
	for at := range n.links {
		if !n.folder {
			name = at.name
		}
	}
	d.mu.Unlock()
	if slow != nil {
		time.Sleep(slow(name))
	}
	return d.write(func() syscall.Errno {
		n.sync()
		return fs.OK
	})
}

// node is an inode as the kernel knows it.
type node struct {
	fs.Inode
	disk  *Disk
	inode *inode
}

// handle is an open file.
type handle struct {
	// each write is synced: the file was opened with O_SYNC or O_DSYNC.
	each bool
}

// O_DSYNC is a part of O_SYNC.
func opened(flags uint32) *handle { return &handle{each: flags&syscall.O_DSYNC != 0} }

var (
	_ fs.NodeLookuper  = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
	_ fs.NodeStatfser  = (*node)(nil)
	_ fs.NodeReaddirer = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeCreater   = (*node)(nil)
	_ fs.NodeMkdirer   = (*node)(nil)
	_ fs.NodeUnlinker  = (*node)(nil)
	_ fs.NodeRmdirer   = (*node)(nil)
	_ fs.NodeRenamer   = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
)

func (n *node) show(ctx context.Context, i *inode, out *fuse.EntryOut) *fs.Inode {
	i.attributes(&out.Attr)
	return n.NewInode(ctx, &node{disk: n.disk, inode: i}, fs.StableAttr{Mode: i.kind(), Ino: i.number})
}

func (n *inode) kind() uint32 {
	if n.folder {
		return fuse.S_IFDIR
	}
	return fuse.S_IFREG
}

func (n *inode) attributes(out *fuse.Attr) {
	out.Ino, out.Mode, out.Size, out.Nlink = n.number, n.kind()|n.mode, uint64(len(n.data)), 1
	out.Blocks, out.Blksize = (out.Size+511)/512, pageSize
	out.SetTimes(&n.changed, &n.changed, &n.changed)
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if i := n.inode.names[name]; i != nil {
		return n.show(ctx, i, out), fs.OK
	}
	return nil, syscall.ENOENT
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	n.inode.attributes(&out.Attr)
	return fs.OK
}

// Setattr changes times and permissions, which no cut loses, and the length, which it may.
func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return n.disk.write(func() syscall.Errno {
		if size, ok := in.GetSize(); ok {
			n.inode.resize(int64(size))
		}
		if mode, ok := in.GetMode(); ok {
			n.inode.mode = mode & 0o7777
		}
		if at, ok := in.GetMTime(); ok {
			n.inode.changed = at
		}
		n.inode.attributes(&out.Attr)
		return fs.OK
	})
}

// Statfs says that there is room: some programs ask first.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	const blocks = 1 << 28 // 1 TiB
	out.Bsize, out.Frsize, out.NameLen = pageSize, pageSize, 255
	out.Blocks, out.Bfree, out.Bavail = blocks, blocks, blocks
	out.Files, out.Ffree = blocks, blocks
	return fs.OK
}

func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	var list []fuse.DirEntry
	for _, name := range slices.Sorted(maps.Keys(n.inode.names)) {
		i := n.inode.names[name]
		list = append(list, fuse.DirEntry{Name: name, Mode: i.kind(), Ino: i.number})
	}
	return fs.NewListDirStream(list), fs.OK
}

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE == syscall.O_RDONLY && flags&syscall.O_TRUNC == 0 {
		return opened(flags), 0, fs.OK
	}
	failed := n.disk.write(func() syscall.Errno {
		if flags&syscall.O_TRUNC != 0 {
			n.inode.resize(0)
		}
		return fs.OK
	})
	return opened(flags), 0, failed
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32,
	out *fuse.EntryOut) (made *fs.Inode, _ fs.FileHandle, _ uint32, failed syscall.Errno) {
	made, failed = n.add(ctx, name, false, mode, out)
	return made, opened(flags), 0, failed
}

// add makes a file or a folder.
func (n *node) add(ctx context.Context, name string, folder bool, mode uint32,
	out *fuse.EntryOut) (made *fs.Inode, failed syscall.Errno) {
	failed = n.disk.write(func() syscall.Errno {
		if n.inode.names[name] != nil {
			return syscall.EEXIST
		}
		i := n.disk.make(folder, mode&0o7777)
		n.inode.set(name, i)
		made = n.show(ctx, i, out)
		return fs.OK
	})
	return made, failed
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, true, mode, out)
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno { return n.remove(name, false) }

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno { return n.remove(name, true) }

func (n *node) remove(name string, folder bool) syscall.Errno {
	return n.disk.write(func() syscall.Errno {
		switch i := n.inode.names[name]; {
		case i == nil:
			return syscall.ENOENT
		case i.folder && !folder:
			return syscall.EISDIR
		case !i.folder && folder:
			return syscall.ENOTDIR
		case len(i.names) > 0:
			return syscall.ENOTEMPTY
		}
		n.inode.set(name, nil)
		return fs.OK
	})
}

// noReplace is RENAME_NOREPLACE; no other flag is known here.
const noReplace = 1

func (n *node) Rename(_ context.Context, name string, newParent fs.InodeEmbedder, newName string,
	flags uint32) syscall.Errno {
	return n.disk.write(func() syscall.Errno {
		to := newParent.(*node).inode
		i, old := n.inode.names[name], to.names[newName]
		switch {
		case flags&^noReplace != 0:
			return syscall.EINVAL
		case i == nil:
			return syscall.ENOENT
		case old != nil && flags == noReplace:
			return syscall.EEXIST
		case old != nil && len(old.names) > 0:
			return syscall.ENOTEMPTY
		case i == old:
			return fs.OK
		}
		n.inode.set(name, nil)
		to.set(newName, i)
		return fs.OK
	})
}

func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	begin := min(off, int64(len(n.inode.data)))
	return fuse.ReadResultData(dest[:copy(dest, n.inode.data[begin:])]), fs.OK
}

func (n *node) Write(_ context.Context, f fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	failed := n.disk.write(func() syscall.Errno {
		n.inode.write(data, off)
		return fs.OK
	})
	if h, ok := f.(*handle); ok && h.each && failed == fs.OK {
		failed = n.disk.sync(n.inode)
	}
	if failed != fs.OK {
		return 0, failed
	}
	return uint32(len(data)), fs.OK
}

func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return n.disk.sync(n.inode)
}
