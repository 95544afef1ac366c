// Package forgetful is a file system in memory that forgets at a power cut what was not synced, as
// a disk with a cache does.
//
// It promises its users no more than POSIX does and, of what file systems with a journal add to
// that, a file's own name:
//   - an fsync of a file keeps its content and its length, and its name in its folder, but
//     not the folder's own name;
//   - an fsync of a folder keeps the names in it, but nothing of what they name;
//   - a rename keeps neither the name nor the content before one of these.
//
// A disk with a journal keeps the folder's own name, too, and those above it: see [NewJournal].
//
// Of what was not synced a cut keeps nothing, or any part: the first changes of a folder's names,
// pages of a file in any order, a file's length without its content.
package forgetful

import (
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// pageSize is the unit in which a cut keeps or drops a file's content, in bytes.
const pageSize = 4096

// Disk is a tree of files. It is safe for concurrent use.
type Disk struct {
	mu      sync.Mutex
	root    *inode
	last    uint64 // the number of the newest inode
	journal bool
	// readOnly and slow are its mood: see ReadOnly and Slow.
	readOnly bool
	slow     func(file string) time.Duration
}

// inode is a file or a folder: as its users see it, and as a cut would leave it.
type inode struct {
	number  uint64
	mode    uint32 // permission bits
	changed time.Time

	folder bool
	names  map[string]*inode
	kept   map[string]*inode
	// moves are what names has and kept has not, in order.
	moves []move

	data     []byte
	keptData []byte
	touched  map[int64]bool // pages in which the two differ

	links map[link]bool
	// journal: a sync keeps the names of the folders that lead here.
	journal bool
}

// move is a change of one name in a folder; to is nil where it was removed.
type move struct {
	name string
	to   *inode
}

// link is a place where a file or a folder has a name.
type link struct {
	folder *inode
	name   string
}

// NewDisk makes an empty one.
func NewDisk() *Disk {
	d := &Disk{}
	d.root = d.make(true, 0o755)
	return d
}

// NewJournal makes an empty one on which an fsync keeps the names of the folders that lead to a
// file or folder as well. POSIX does not promise that. ext4, XFS and btrfs do it, as a folder's
// name is in their journal before those in it.
func NewJournal() *Disk {
	d := &Disk{journal: true}
	d.root = d.make(true, 0o755)
	return d
}

// ReadOnly makes the disk refuse all writes, also to files that are open, as a file system does
// that has met an error; or take them again.
func (d *Disk) ReadOnly(refuse bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readOnly = refuse
}

// Slow makes each sync take as long as a function says, which is given the file's name, or "" for a
// folder; nil makes it fast again.
func (d *Disk) Slow(delay func(file string) time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = delay
}

func (d *Disk) make(folder bool, mode uint32) *inode {
	d.last++
	n := &inode{number: d.last, mode: mode, changed: time.Now(), folder: folder,
		links: map[link]bool{}, journal: d.journal}
	if folder {
		n.names, n.kept = map[string]*inode{}, map[string]*inode{}
	} else {
		n.touched = map[int64]bool{}
	}
	return n
}

// set gives a name in a folder to a file, or to nothing (nil).
func (n *inode) set(name string, to *inode) {
	if old := n.names[name]; old != nil {
		delete(old.links, link{n, name})
	}
	if to == nil {
		delete(n.names, name)
	} else {
		n.names[name] = to
		to.links[link{n, name}] = true
	}
	n.moves = append(n.moves, move{name, to})
	n.changed = time.Now()
}

func (n *inode) write(data []byte, at int64) {
	end := at + int64(len(data))
	if end > int64(len(n.data)) {
		n.resize(end)
	}
	copy(n.data[at:], data)
	n.touch(at, end)
}

func (n *inode) resize(size int64) {
	old := int64(len(n.data))
	if size <= old {
		n.data = n.data[:size]
		n.touch(size, old)
		return
	}
	n.data = slices.Grow(n.data, int(size-old))[:size]
	clear(n.data[old:])
	n.touch(old, size)
}

func (n *inode) touch(from, to int64) {
	for page := from / pageSize; page*pageSize < to; page++ {
		n.touched[page] = true
	}
	n.changed = time.Now()
}

// sync makes a file or a folder what a cut leaves.
func (n *inode) sync() {
	if n.folder {
		n.kept, n.moves = maps.Clone(n.names), nil
		if n.journal {
			n.keepNames()
		}
		return
	}
	n.keptData = withLength(n.keptData, len(n.data))
	for page := range n.touched {
		keepPage(n.keptData, n.data, page)
	}
	clear(n.touched)
	n.keepNames()
}

// keepNames keeps the names of a file or a folder.
func (n *inode) keepNames() {
	for at := range n.links {
		at.folder.kept[at.name] = n
		at.folder.moves = slices.DeleteFunc(at.folder.moves, func(m move) bool { return m.name == at.name })
		if n.journal {
			at.folder.keepNames()
		}
	}
}

func withLength(data []byte, size int) []byte {
	if size <= len(data) {
		return data[:size]
	}
	old := len(data)
	data = slices.Grow(data, size-old)[:size]
	clear(data[old:])
	return data
}

func keepPage(to, from []byte, page int64) {
	begin := min(page*pageSize, int64(len(to)), int64(len(from)))
	end := min(begin+pageSize, int64(len(to)), int64(len(from)))
	copy(to[begin:end], from[begin:end])
}

// Cut is the disk as a power cut in this moment leaves it: with what was synced, and of the rest
// what chance keeps; nil keeps nothing.
func (d *Disk) Cut(chance *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := &Disk{journal: d.journal}
	c := cut{left: left, chance: chance, done: map[*inode]*inode{}}
	left.root = c.inode(d.root)
	return left
}

type cut struct {
	left   *Disk
	chance *rand.Rand
	done   map[*inode]*inode
}

func (c *cut) inode(n *inode) *inode {
	if made := c.done[n]; made != nil {
		return made
	}
	made := c.left.make(n.folder, n.mode)
	made.changed = n.changed
	c.done[n] = made
	if !n.folder {
		made.data = c.content(n)
		made.keptData = slices.Clone(made.data)
		return made
	}
	names := maps.Clone(n.kept)
	if c.chance != nil {
		for _, m := range n.moves[:c.chance.IntN(len(n.moves)+1)] {
			if m.to == nil {
				delete(names, m.name)
			} else {
				names[m.name] = m.to
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		made.set(name, c.inode(names[name]))
	}
	made.sync()
	return made
}

// content is what a cut leaves of a file.
func (c *cut) content(n *inode) []byte {
	data := slices.Clone(n.keptData)
	if c.chance == nil || len(n.touched) == 0 {
		return data
	}
	const nothing, all, pages, length = 0, 1, 2, 3
	what := c.chance.IntN(length + 1)
	if what == nothing {
		return data
	}
	data = withLength(data, len(n.data))
	for _, page := range slices.Sorted(maps.Keys(n.touched)) {
		if what == all || what == pages && c.chance.IntN(2) == 0 {
			keepPage(data, n.data, page)
		}
	}
	return data
}

// ReadFile reads a file by its path from the root.
func (d *Disk) ReadFile(name string) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.find(name)
	if n == nil || n.folder {
		return nil, false
	}
	return slices.Clone(n.data), true
}

// Files are the paths of all files that match a pattern of [path.Match], sorted.
func (d *Disk) Files(pattern string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []string
	var walk func(at string, n *inode)
	walk = func(at string, n *inode) {
		for name, to := range n.names {
			p := path.Join(at, name)
			if to.folder {
				walk(p, to)
			} else if ok, _ := path.Match(pattern, p); ok {
				found = append(found, p)
			}
		}
	}
	walk("", d.root)
	slices.Sort(found)
	return found
}

func (d *Disk) find(name string) *inode {
	n := d.root
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if n == nil || !n.folder {
			return nil
		}
		n = n.names[part]
	}
	return n
}
