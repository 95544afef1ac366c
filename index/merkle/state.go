package merkle

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rondo-rl/rondo/index/source"
)

// State is what a walk learnt of a tree: which content each stamp stood for. It is a cache,
// good for walks of the same folder with the same limits; without it, or after damage,
// everything is read again.
type State struct {
	limits Limits
	// The folder itself, to tell an emptied one from a mount that is missing.
	inode, device uint64
	root          *remembered
}

// remembered is a folder in a state.
type remembered struct {
	entries []memory // sorted by name
}

// memory is what a state holds of one entry.
type memory struct {
	name   string
	stamp  stamp
	digest Digest
	reason source.Reason // why the content is not indexed
	folder *remembered   // nil for a file
}

const (
	stateMagic = "rondo tree state 1\n"
	maxState   = 512 << 20
	maxEntries = 5_000_000
	maxDepth   = 500
	maxName    = 1 << 10
)

// ErrDamagedState says that a state file is not what Save wrote. Walk without one.
var ErrDamagedState = errors.New("damaged state file")

// Save writes the state to a file, in place of an older one at once, as seal makes it unreadable:
// it holds the tree's names. It is not synced: a lost state is made again.
func (s *State) Save(name string, seal func([]byte) []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp") // readable by its owner alone
	if err != nil {
		return fmt.Errorf("save tree state: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("save tree state %s: %w", name, err)
		}
	}()
	if _, err := f.Write(seal(s.encode())); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// LoadState reads what Save wrote, as open makes it readable. The error is fs.ErrNotExist where
// there is none, and ErrDamagedState for anything that is not whole or of another version.
func LoadState(name string, open func([]byte) ([]byte, error)) (*State, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("load tree state: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxState {
		return nil, fmt.Errorf("load tree state %s: %w: no file, or larger than %d bytes", name,
			ErrDamagedState, maxState)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("load tree state: %w", err)
	}
	defer f.Close()
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("load tree state %s: %w", name, err)
	}
	var s *State
	if data, err = open(data); err == nil {
		s, err = decodeState(data)
	}
	if err != nil {
		return nil, fmt.Errorf("load tree state %s: %w: %w", name, ErrDamagedState, err)
	}
	return s, nil
}

// encode lays the state out: magic, header, folders in depth, and a SHA-256 over all of it.
func (s *State) encode() []byte {
	out := []byte(stateMagic)
	for _, v := range []uint64{
		source.Version, uint64(s.limits.FileBytes), uint64(s.limits.Files), uint64(s.limits.Depth),
		uint64(s.limits.NameBytes), s.inode, s.device,
	} {
		out = binary.AppendUvarint(out, v)
	}
	out = s.root.append(out)
	sum := sha256.Sum256(out)
	return append(out, sum[:]...)
}

// folderEntry stands where a file has its reason.
const folderEntry = 0xff

func (r *remembered) append(out []byte) []byte {
	out = binary.AppendUvarint(out, uint64(len(r.entries)))
	for i := range r.entries {
		e := &r.entries[i]
		out = binary.AppendUvarint(out, uint64(len(e.name)))
		out = append(out, e.name...)
		if e.folder != nil {
			out = e.folder.append(append(out, folderEntry))
			continue
		}
		out = append(out, byte(e.reason))
		for _, v := range []uint64{uint64(e.stamp.size), e.stamp.inode, e.stamp.device, uint64(e.stamp.mode)} {
			out = binary.AppendUvarint(out, v)
		}
		out = binary.LittleEndian.AppendUint64(out, uint64(e.stamp.modified))
		out = binary.LittleEndian.AppendUint64(out, uint64(e.stamp.changed))
		if e.reason == source.Indexed {
			out = append(out, e.digest[:]...)
		}
	}
	return out
}

func decodeState(data []byte) (*State, error) {
	body := len(data) - sha256.Size
	if body < 0 || !bytes.HasPrefix(data, []byte(stateMagic)) {
		return nil, errors.New("it does not begin as one")
	}
	if sha256.Sum256(data[:body]) != Digest(data[body:]) {
		return nil, errors.New("its digest does not fit")
	}
	d := &decoder{rest: string(data[len(stateMagic):body])} // names are parts of this one string
	version := d.uvarint()
	s := &State{limits: Limits{FileBytes: int64(d.uvarint()), Files: int(d.uvarint()), Depth: int(d.uvarint()),
		NameBytes: int(d.uvarint())}}
	s.inode, s.device = d.uvarint(), d.uvarint()
	if d.err == nil && version != source.Version {
		return nil, errors.New("it is of another version")
	}
	if d.err == nil {
		d.err = s.limits.Validate()
	}
	s.root = d.folder(s.limits, 0)
	if d.err == nil && d.rest != "" {
		d.fail("bytes after its end")
	}
	if d.err != nil {
		return nil, d.err
	}
	return s, nil
}

type decoder struct {
	rest    string
	entries int
	err     error
}

func (d *decoder) fail(why string) {
	if d.err == nil {
		d.err = errors.New(why)
	}
	d.rest = ""
}

func (d *decoder) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64 && len(d.rest) > 0; shift += 7 {
		c := d.rest[0]
		d.rest = d.rest[1:]
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	d.fail("a number that does not end")
	return 0
}

func (d *decoder) take(n uint64) string {
	if n > uint64(len(d.rest)) {
		d.fail("it ends too early")
		return ""
	}
	text := d.rest[:n]
	d.rest = d.rest[n:]
	return text
}

func (d *decoder) int64() int64 {
	text := d.take(8)
	if d.err != nil {
		return 0
	}
	var v uint64
	for i := range 8 {
		v |= uint64(text[i]) << (8 * i)
	}
	return int64(v)
}

// entryBytes is the least that an entry takes, so that a claimed number of them is
// checked before memory is spent.
const entryBytes = 4

func (d *decoder) folder(limits Limits, depth int) *remembered {
	n := d.uvarint()
	switch {
	case d.err != nil:
	case n > uint64(len(d.rest)/entryBytes+1) || d.entries+int(n) > maxEntries:
		d.fail("too many entries")
	case depth > limits.Depth:
		d.fail("too deep")
	}
	if d.err != nil {
		return nil
	}
	d.entries += int(n)
	r := &remembered{entries: make([]memory, n)}
	last := ""
	for i := range r.entries {
		e := &r.entries[i]
		e.name = d.take(d.uvarint())
		if d.err == nil && (e.name <= last || len(e.name) > limits.NameBytes || e.name == "." || e.name == ".." ||
			strings.ContainsAny(e.name, "/\x00")) {
			d.fail("a name that no entry has")
		}
		last = e.name
		d.entry(e, limits, depth)
		if d.err != nil {
			return nil
		}
	}
	return r
}

func (d *decoder) entry(e *memory, limits Limits, depth int) {
	kind := d.take(1)
	if d.err != nil {
		return
	}
	if kind[0] == folderEntry {
		e.folder = d.folder(limits, depth+1)
		return
	}
	e.reason = source.Reason(kind[0])
	size, inode, device, mode := d.uvarint(), d.uvarint(), d.uvarint(), d.uvarint()
	e.stamp = stamp{size: int64(size), inode: inode, device: device, mode: uint32(mode), regular: true}
	e.stamp.modified, e.stamp.changed = d.int64(), d.int64()
	if !e.reason.Valid() || size > uint64(limits.FileBytes) {
		d.fail("an entry that no walk makes")
	}
	if e.reason == source.Indexed {
		copy(e.digest[:], d.take(sha256.Size))
	}
}
