package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// Extension is that of safetensors files.
	Extension = ".safetensors"
	// IndexName is the file that says which shard holds which tensor.
	IndexName = "model.safetensors.index.json"

	maxShards = 4096
	maxIndex  = 256 << 20 // bytes
)

// File is an open safetensors file whose structure has been verified.
type File struct {
	Name string
	Size int64
	*Header
	io.ReaderAt
}

// NewFile verifies the structure of a file of size bytes; see Validate.
func NewFile(name string, r io.ReaderAt, size int64) (*File, error) {
	h, err := Validate(r, size, 0)
	if err != nil {
		return nil, fmt.Errorf("file %.140s: %w", name, err)
	}
	return &File{Name: name, Size: size, Header: h, ReaderAt: r}, nil
}

// DataOffset is where the tensors' bytes begin.
func (f *File) DataOffset() int64 {
	if len(f.Tensors) == 0 {
		return f.Size
	}
	return f.Tensors[0].Offset
}

// Checkpoint is the tensors of one model, in one file or in several.
type Checkpoint struct {
	Files []*File

	tensors map[string]Located
	closers []io.Closer
}

// Located is a tensor together with its file.
type Located struct {
	Tensor
	File *File
}

// NewCheckpoint joins files. No tensor may be in two of them.
func NewCheckpoint(files ...*File) (*Checkpoint, error) {
	if len(files) > maxShards {
		return nil, corrupt("%d files (limit %d)", len(files), maxShards)
	}
	c := &Checkpoint{Files: files, tensors: map[string]Located{}}
	names := map[string]bool{}
	for _, file := range files {
		if names[file.Name] {
			return nil, corrupt("file %.140s appears twice", file.Name)
		}
		names[file.Name] = true
		for _, t := range file.Tensors {
			if other, taken := c.tensors[t.Name]; taken {
				return nil, corrupt("tensor %.80q is in %.140s and in %.140s", t.Name, other.File.Name, file.Name)
			}
			c.tensors[t.Name] = Located{t, file}
		}
	}
	return c, nil
}

// Tensor finds a tensor by name.
func (c *Checkpoint) Tensor(name string) (Located, bool) {
	t, ok := c.tensors[name]
	return t, ok
}

// Bytes is the size of all files.
func (c *Checkpoint) Bytes() int64 {
	total := int64(0)
	for _, file := range c.Files {
		total += file.Size
	}
	return total
}

// Close closes the files that Open has opened.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, closer := range c.closers {
		errs = append(errs, closer.Close())
	}
	return errors.Join(errs...)
}

// Open opens a safetensors file, or all of a folder in the order of their names. Where the folder
// has an index, it must name each tensor in its file, and no other.
func Open(path string) (*Checkpoint, error) {
	c, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", path, err)
	}
	return c, nil
}

func open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	paths := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		paths = nil
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), Extension) && !strings.HasPrefix(e.Name(), ".") {
				paths = append(paths, filepath.Join(path, e.Name()))
			}
		}
		slices.Sort(paths)
	}
	if len(paths) == 0 || len(paths) > maxShards {
		return nil, corrupt("%d files end in %s (limit %d)", len(paths), Extension, maxShards)
	}
	c, err := openFiles(paths)
	if err != nil || !info.IsDir() {
		return c, err
	}
	if err := c.checkIndexFile(filepath.Join(path, IndexName)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func openFiles(paths []string) (*Checkpoint, error) {
	opened := &Checkpoint{}
	for _, path := range paths {
		file, err := openFile(path, opened)
		if err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		opened.Files = append(opened.Files, file)
	}
	c, err := NewCheckpoint(opened.Files...)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	c.closers = opened.closers
	return c, nil
}

func openFile(path string, owner *Checkpoint) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	owner.closers = append(owner.closers, f)
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, corrupt("%s is no regular file", path)
	}
	return NewFile(filepath.Base(path), f, info.Size())
}

func (c *Checkpoint) checkIndexFile(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Size() > maxIndex {
		return corrupt("%s has %d bytes (limit %d)", IndexName, info.Size(), maxIndex)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return c.CheckIndexes(map[string][]byte{IndexName: text})
}

// checkIndex verifies that the text of an index names tensors of the checkpoint once each, in
// their files, and all tensors of the files that it names. It gives the number of tensors of
// each file that it names.
func (c *Checkpoint) checkIndex(name string, text []byte) (map[string]int, error) {
	places, err := indexPlaces(text)
	if err != nil {
		return nil, corrupt("%s: %w", name, err)
	}
	perFile := map[string]int{}
	for tensor, file := range places {
		switch t, ok := c.tensors[tensor]; {
		case !ok:
			return nil, corrupt("%s: tensor %.80q is in no file, and said to be in %.140q", name, tensor, file)
		case t.File.Name != file:
			return nil, corrupt("%s: tensor %.80q is in %.140q, and not in %.140q", name, tensor, t.File.Name, file)
		}
		perFile[file]++
	}
	for _, file := range c.Files {
		if n, indexed := perFile[file.Name]; indexed && n != len(file.Tensors) {
			return nil, corrupt("%s names %d of the %d tensors of %.140q", name, n, len(file.Tensors), file.Name)
		}
	}
	return perFile, nil
}

// CheckIndexes verifies the texts of indexes by their names, and that each file with
// tensors is in one of them.
func (c *Checkpoint) CheckIndexes(texts map[string][]byte) error {
	indexed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		files, err := c.checkIndex(name, texts[name])
		if err != nil {
			return err
		}
		for file := range files {
			indexed[file] = true
		}
	}
	for _, file := range c.Files {
		if len(texts) > 0 && len(file.Tensors) > 0 && !indexed[file.Name] {
			return corrupt("no index names the %d tensors of %.140q", len(file.Tensors), file.Name)
		}
	}
	return nil
}

// indexPlaces reads {"weight_map": {"tensor": "file", …}, …}. A tensor that appears twice is
// refused: readers differ in which place they take.
func indexPlaces(text []byte) (map[string]string, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	var places map[string]string
	err := object(decoder, func(key string) error {
		if key != "weight_map" {
			_, err := decode[json.RawMessage](decoder)
			return err
		}
		places = map[string]string{}
		return object(decoder, func(tensor string) error {
			file, err := decode[*string](decoder)
			if err != nil || file == nil {
				return fmt.Errorf("the place of %.80q is not a text", tensor)
			}
			places[tensor] = *file
			return nil
		})
	})
	if err == nil && places == nil {
		err = errors.New("it has no weight_map")
	}
	if err == nil && decoder.More() {
		err = errors.New("something follows its end")
	}
	return places, err
}

// Index is the text of the checkpoint's IndexName.
func (c *Checkpoint) Index() ([]byte, error) {
	places, total := map[string]string{}, int64(0)
	for name, t := range c.tensors {
		places[name], total = t.File.Name, total+t.Size
	}
	return json.MarshalIndent(map[string]any{"metadata": map[string]int64{"total_size": total}, "weight_map": places},
		"", "  ")
}
