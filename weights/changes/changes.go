// Package changes writes which elements of a checkpoint's tensors differ from those of another one,
// so that an inference server can set them in place.
//
// The files are safetensors. A tensor NAME of which elements differ has two tensors in them,
// NAME:at with the places of the elements in the flat tensor (I32, rising) and NAME:to with their
// new values, and its whole shape as JSON under NAME in the file's metadata. A tensor may be in
// several files, with other elements in each.
package changes

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/weights/safetensors"
)

const (
	// piece is what is compared at once of each checkpoint, in bytes: a multiple
	// of every element's size.
	piece = 4 << 20
	// fileSize is when a file is written: as much is in memory, in bytes.
	fileSize = 64 << 20

	placeType = "I32"
	placeSize = 4
)

// Names of the two tensors behind that of the tensor that they change.
const (
	placesSuffix = ":at"
	valuesSuffix = ":to"
)

// ErrWhole means that a checkpoint is to be loaded whole: its tensors are others,
// or too much has changed.
var ErrWhole = errors.New("load the checkpoint whole")

// Write writes the changes from old to new into files of a folder that exists, and gives
// the SHA-256 of each by its name. It is ErrWhole where they would have more than half
// of the checkpoint's bytes.
func Write(ctx context.Context, old, new *safetensors.Checkpoint, dir string) (map[string]string, error) {
	return write(ctx, old, new, &writer{dir: dir, limit: new.Bytes() / 2, fileSize: fileSize,
		digests: map[string]string{}})
}

func write(ctx context.Context, old, new *safetensors.Checkpoint, w *writer) (map[string]string, error) {
	pairs, err := match(old, new)
	if err != nil {
		return nil, err
	}
	comparing, going := errgroup.WithContext(ctx)
	comparing.SetLimit(min(runtime.GOMAXPROCS(0), 8))
	for _, p := range pairs {
		for at := int64(0); at < p.new.Size && going.Err() == nil; at += piece {
			comparing.Go(func() error {
				if going.Err() != nil {
					return going.Err()
				}
				places, values, err := p.compare(at, min(piece, p.new.Size-at))
				if err != nil || len(places) == 0 {
					return err
				}
				return w.add(p.new, places, values)
			})
		}
	}
	if err := comparing.Wait(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return w.digests, w.flush()
}

// pair is a tensor of both checkpoints.
type pair struct{ old, new safetensors.Located }

// match finds each tensor in the other checkpoint.
func match(old, new *safetensors.Checkpoint) (pairs []pair, err error) {
	count := 0
	for _, file := range old.Files {
		count += len(file.Tensors)
	}
	for _, file := range new.Files {
		for _, t := range file.Tensors {
			before, ok := old.Tensor(t.Name)
			switch {
			case !ok || before.Dtype != t.Dtype || !slices.Equal(before.Shape, t.Shape):
				return nil, fmt.Errorf("%w: the other one has no tensor %.80q of %s %v", ErrWhole,
					t.Name, t.Dtype, t.Shape)
			case t.Elements() > math.MaxInt32:
				return nil, fmt.Errorf("%w: tensor %.80q has %d elements (limit %d)", ErrWhole, t.Name,
					t.Elements(), math.MaxInt32)
			case t.Size > 0 && t.Size%t.Elements() != 0 || t.Size > 0 && piece%(t.Size/t.Elements()) != 0:
				return nil, fmt.Errorf("%w: elements of %s are no whole bytes", ErrWhole, t.Dtype)
			}
			pairs = append(pairs, pair{before, safetensors.Located{Tensor: t, File: file}})
		}
	}
	if count != len(pairs) {
		return nil, fmt.Errorf("%w: the other one has %d tensors, and not %d", ErrWhole, count, len(pairs))
	}
	return pairs, nil
}

// compare gives the elements that differ in a span of bytes.
func (p *pair) compare(at, size int64) (places, values []byte, err error) {
	both := make([]byte, 2*size)
	a, b := both[:size], both[size:]
	for _, read := range []struct {
		into []byte
		from safetensors.Located
	}{{a, p.old}, {b, p.new}} {
		if n, err := read.from.File.ReadAt(read.into, read.from.Offset+at); n != len(read.into) {
			return nil, nil, fmt.Errorf("read tensor %s of %s: %w", p.new.Name, read.from.File.Name,
				errors.Join(err, io.ErrUnexpectedEOF))
		}
	}
	width := int(p.new.Size / p.new.Elements())
	first := uint32(at / int64(width))
	for i := 0; i < len(b); {
		if i+8 <= len(b) && binary.LittleEndian.Uint64(a[i:]) == binary.LittleEndian.Uint64(b[i:]) {
			i += 8
			continue
		}
		// elements may be those of a word or several words
		for end := min(i+max(8, width), len(b)); i < end; i += width {
			if string(a[i:i+width]) != string(b[i:i+width]) {
				places = binary.LittleEndian.AppendUint32(places, first+uint32(i/width))
				values = append(values, b[i:i+width]...)
			}
		}
	}
	return places, values, nil
}

// writer collects changes, and writes them when they fill a file.
type writer struct {
	dir             string
	limit, fileSize int64 // of all files together, and of one
	digests         map[string]string

	mu      sync.Mutex
	pending []pieceOf
	size    int64 // of what is pending
	total   int64
}

// pieceOf is what has changed in a piece of a tensor.
type pieceOf struct {
	tensor         safetensors.Located
	places, values []byte
}

func (w *writer) add(t safetensors.Located, places, values []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := int64(len(places) + len(values))
	if w.total += size; w.total > w.limit {
		return fmt.Errorf("%w: the changes have more than %d bytes", ErrWhole, w.limit)
	}
	w.pending, w.size = append(w.pending, pieceOf{t, places, values}), w.size+size
	if w.size < w.fileSize {
		return nil
	}
	return w.flush()
}

// flush writes a file of what is pending.
func (w *writer) flush() error {
	if len(w.pending) == 0 {
		return nil
	}
	slices.SortFunc(w.pending, func(a, b pieceOf) int { // pieces of a tensor, in their order
		return int(int64(binary.LittleEndian.Uint32(a.places)) - int64(binary.LittleEndian.Uint32(b.places)))
	})
	joined := map[string]*pieceOf{}
	for _, p := range w.pending {
		if j := joined[p.tensor.Name]; j != nil {
			j.places, j.values = append(j.places, p.places...), append(j.values, p.values...)
		} else {
			joined[p.tensor.Name] = &p
		}
	}
	var tensors []safetensors.Data
	shapes := map[string]string{}
	for name, j := range joined {
		shape, err := json.Marshal(append([]int64{}, j.tensor.Shape...))
		if err != nil {
			return err
		}
		shapes[name] = string(shape)
		count := []int64{int64(len(j.places) / placeSize)}
		tensors = append(tensors,
			safetensors.Data{Name: name + placesSuffix, Dtype: placeType, Shape: count, Bytes: j.places},
			safetensors.Data{Name: name + valuesSuffix, Dtype: j.tensor.Dtype, Shape: count, Bytes: j.values})
	}
	name := fmt.Sprintf("changes-%05d%s", len(w.digests)+1, safetensors.Extension)
	file, err := os.Create(filepath.Join(w.dir, name))
	if err != nil {
		return err
	}
	digest := sha256.New()
	if err := errors.Join(safetensors.Write(io.MultiWriter(file, digest), tensors, shapes), file.Close()); err != nil {
		return err
	}
	w.digests[name] = hex.EncodeToString(digest.Sum(nil))
	w.pending, w.size = nil, 0
	return nil
}
