// Package archive is the one file-tree format of the sandbox: a tar whose bytes depend on the
// tree alone, as it is or compressed by zstd. It is written and read as a stream: nothing here
// holds a tree's contents.
//
// Two kinds share it. A snapshot (Pack, Unpack) is a whole tree. A change (Diff, Apply) holds only
// what differs from a base, with deletions as entries of their own. Both readers treat their input
// as hostile: names stay inside the root, sizes and counts are bounded before memory is spent, and
// anything but files, folders and symbolic links is refused.
package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	// MaxFiles bounds the entries of one archive; a large monorepository snapshot
	// has some tens of thousands.
	MaxFiles = 100_000
	// MaxBytes bounds the sum of the file contents of one archive, before compression. A sandbox's
	// disk usually bounds it sooner.
	MaxBytes = 8 << 30
	// MaxArchive bounds an archive that is held in memory, such as a task's tests: one fits
	// a message to the sandbox.
	MaxArchive = 256 << 20
	// MaxChange bounds the compressed size of a change that is held in memory.
	MaxChange = 64 << 20

	maxName = 4096 // PATH_MAX: a longer name cannot be opened by the programs of the task

	// maxDepth bounds the folders above an entry: the way to each is walked step by step, so depth
	// multiplies the time that a tree takes. Nested packages of real projects are some 40 deep.
	maxDepth = 128
	// maxNames bounds the sum of the names of one archive, which compress to
	// nothing and are held in memory.
	maxNames = 32 << 20
)

// maxFiles and maxBytes are MaxFiles and MaxBytes, but in tests.
var (
	maxFiles       = MaxFiles
	maxBytes int64 = MaxBytes
)

// deletedKey marks a tar entry as a deletion; no file in a tree can carry it.
const deletedKey = "RONDO.deleted"

var (
	// ErrTooLarge says that a tree or an archive exceeds MaxFiles, MaxBytes, MaxArchive, or the
	// bounds of names and depth.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid says that an archive is damaged or asks for something that a tree may not hold.
	ErrInvalid = errors.New("invalid archive")
)

// Times carry no meaning in a workspace, but they must be equal everywhere, lie after 1980 for zip
// tools, and let make see changes as newer than what they were built from.
var (
	snapshotTime = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	changeTime   = time.Date(2001, 1, 2, 0, 0, 0, 0, time.UTC)
)

// entry is one member of an archive. Mode holds the type and the nine permission bits, size is
// that of a file's content.
type entry struct {
	name    string
	mode    fs.FileMode
	link    string
	size    int64
	deleted bool
}

// writer appends entries, in the order given, and counts against the bounds.
type writer struct {
	zstd   *zstd.Encoder // nil for one that does not compress
	tar    *tar.Writer
	budget budget
}

func newPlainWriter(out io.Writer) *writer { return &writer{tar: tar.NewWriter(out)} }

func newWriter(out io.Writer) (*writer, error) {
	w := &writer{}
	encoder, err := Compress(out)
	if err != nil {
		return nil, err
	}
	w.zstd, w.tar = encoder, tar.NewWriter(encoder)
	return w, nil
}

// Compress gives an encoder that compresses an archive: a plain one that goes through it is the
// same as one that was written compressed.
func Compress(out io.Writer) (*zstd.Encoder, error) {
	// One goroutine: the parallel encoder cuts blocks by timing, and the bytes must
	// depend on the tree alone.
	return zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
}

// add appends an entry; content must give as many bytes as its size says.
func (w *writer) add(e entry, content io.Reader) error {
	if err := w.budget.spend(e.name, e.size); err != nil {
		return err
	}
	header := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), Format: tar.FormatPAX}
	switch {
	case e.deleted:
		header.Typeflag = tar.TypeReg
		header.PAXRecords = map[string]string{deletedKey: "1"}
	case e.mode.IsDir():
		header.Typeflag = tar.TypeDir
		header.Name += "/"
	case e.mode&fs.ModeSymlink != 0:
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, e.link, 0o777
	default:
		header.Typeflag, header.Size = tar.TypeReg, e.size
	}
	if err := w.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s: %w", e.name, err)
	}
	if e.size == 0 {
		return nil
	}
	if _, err := io.CopyN(w.tar, content, e.size); err != nil {
		return fmt.Errorf("write %s: %w", e.name, err)
	}
	return nil
}

func (w *writer) finish() error {
	if w.zstd == nil {
		return w.tar.Close()
	}
	return errors.Join(w.tar.Close(), w.zstd.Close())
}

// Blocks keeps what is written to it, up to a limit, in pieces, as one buffer that grows
// would take twice the memory.
type Blocks struct {
	Limit  int
	Pieces [][]byte
	size   int
}

const pieceSize = 1 << 20

// Write implements io.Writer, within Limit.
func (b *Blocks) Write(data []byte) (int, error) {
	if b.size += len(data); b.size > b.Limit {
		return 0, fmt.Errorf("archive: %w: more than %d bytes", ErrTooLarge, b.Limit)
	}
	for rest := data; len(rest) > 0; {
		last := len(b.Pieces) - 1
		if last < 0 || len(b.Pieces[last]) == pieceSize {
			b.Pieces = append(b.Pieces, make([]byte, 0, pieceSize))
			last++
		}
		taken := min(len(rest), pieceSize-len(b.Pieces[last]))
		b.Pieces[last] = append(b.Pieces[last], rest[:taken]...)
		rest = rest[taken:]
	}
	return len(data), nil
}

// zstdMagic begins what zstd has compressed. No tar that this package writes begins with it: a name
// that is not ASCII has a header of its own.
var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// read calls visit for every entry of an archive, in order, after checking everything that needs no
// file system. The content is there until visit returns. An error of from itself is ErrSource.
func read(from io.Reader, visit func(e entry, content io.Reader) error) error {
	failing := &failingReader{from: from}
	buffered := bufio.NewReaderSize(failing, 64<<10)
	start, err := buffered.Peek(len(zstdMagic))
	if err != nil && failing.err != nil {
		return failing.err
	}
	if !bytes.Equal(start, zstdMagic) {
		return cmp.Or(readTar(buffered, failing, visit), failing.drain(buffered))
	}
	decoder, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	defer decoder.Close()
	return cmp.Or(readTar(decoder, failing, visit), failing.drain(decoder), failing.drain(buffered))
}

// maxTrailer bounds what may follow an archive's last entry, in bytes: tar pads with zeros.
const maxTrailer = 1 << 20

// drain reads to the end of the place that an archive comes from, where it says whether it
// has given the right bytes.
func (f *failingReader) drain(from io.Reader) error {
	n, err := io.CopyN(io.Discard, from, maxTrailer+1)
	switch {
	case f.err != nil:
		return f.err
	case n > maxTrailer:
		return fmt.Errorf("%w: more than %d bytes follow its last entry", ErrInvalid, maxTrailer)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// failingReader remembers an error of the place that an archive comes from, which
// says nothing of the archive.
type failingReader struct {
	from io.Reader
	err  error
}

func (f *failingReader) Read(p []byte) (int, error) {
	n, err := f.from.Read(p)
	if err != nil && err != io.EOF {
		f.err = fmt.Errorf("read the archive: %w: %w", ErrSource, err)
	}
	return n, err
}

func readTar(from io.Reader, source *failingReader, visit func(e entry, content io.Reader) error) error {
	// Headers cost at most a few KiB each, so this stops a bomb that never
	// reaches a file's content.
	reader := tar.NewReader(io.LimitReader(from, maxBytes+MaxFiles*4096))
	var spent budget
	for {
		header, err := reader.Next()
		if source.err != nil {
			return source.err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		e, err := decode(header, &spent)
		if err != nil {
			return err
		}
		if err := visit(e, reader); err != nil {
			return cmp.Or(source.err, err)
		}
	}
}

func decode(header *tar.Header, spent *budget) (entry, error) {
	e := entry{name: strings.TrimSuffix(header.Name, "/"), mode: fs.FileMode(header.Mode) & fs.ModePerm}
	if err := checkName(e.name); err != nil {
		return e, err
	}
	if err := spent.spend(e.name, header.Size); err != nil {
		return e, err
	}
	e.deleted = header.PAXRecords[deletedKey] != ""
	switch header.Typeflag {
	case tar.TypeReg:
		e.size = header.Size
	case tar.TypeDir:
		e.mode |= fs.ModeDir
	case tar.TypeSymlink:
		e.mode, e.link = fs.ModeSymlink|0o777, header.Linkname
		if e.link == "" || len(e.link) > maxName || strings.ContainsRune(e.link, 0) {
			return e, fmt.Errorf("%w: %s: symbolic link with an empty or overlong target", ErrInvalid, e.name)
		}
	default:
		return e, fmt.Errorf("%w: %s: only files, folders and symbolic links are allowed, not tar type %q", ErrInvalid,
			e.name, header.Typeflag)
	}
	return e, nil
}

// checkName refuses what is not a clean path below the root.
func checkName(name string) error {
	if len(name) > maxName || name == "." || !fs.ValidPath(strings.ToValidUTF8(name, "?")) ||
		strings.ContainsRune(name, 0) {
		return fmt.Errorf("%w: name %.200q is not a clean path inside the tree", ErrInvalid, name)
	}
	return nil
}

// escapes reports whether a link at name, resolved by text alone, points outside the tree.
func escapes(name, target string) bool {
	if path.IsAbs(target) {
		return true
	}
	joined := path.Join(path.Dir(name), target)
	return joined == ".." || strings.HasPrefix(joined, "../")
}

// checkDepth refuses what is below too many folders.
func checkDepth(name string) error {
	if depth := strings.Count(name, "/"); depth > maxDepth {
		return fmt.Errorf("%w: %.200s…: %d folders deep (limit %d)", ErrTooLarge, name, depth, maxDepth)
	}
	return nil
}

// budget counts entries and bytes of one archive.
type budget struct {
	files int
	bytes int64
	names int
	most  int64 // bytes, 0 for MaxBytes
}

func (b *budget) spend(name string, size int64) error {
	b.files++
	if b.names += len(name); b.names > maxNames {
		return fmt.Errorf("%.200s: %w: the names exceed %d bytes in all", name, ErrTooLarge, maxNames)
	}
	if err := checkDepth(name); err != nil {
		return err
	}
	if most := min(cmp.Or(b.most, maxBytes), maxBytes); size < 0 || size > most-b.bytes {
		return fmt.Errorf("%.200s: %w: contents exceed %d bytes in all", name, ErrTooLarge, most)
	}
	b.bytes += size
	if b.files > maxFiles {
		return fmt.Errorf("%.200s: %w: more than %d entries", name, ErrTooLarge, maxFiles)
	}
	return nil
}
