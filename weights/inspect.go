package weights

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// What a trainer may allow for a version: the values of allow in events.WeightsSubmitted.
const (
	// AllowNotFinite publishes tensors with NaN or infinities.
	AllowNotFinite = "not_finite"
	// AllowEmpty publishes tensors without elements.
	AllowEmpty = "empty"
	// AllowOtherTensors publishes tensors of other names, types or shapes than
	// those of the version before.
	AllowOtherTensors = "other_tensors"
	// AllowGap publishes a version that leaves out more numbers than steps were trained.
	AllowGap = "gap"
)

// ErrUnfit means that the files of a version are sound one by one, and no whole, finite model that
// follows the version before.
var ErrUnfit = errors.New("unfit weights")

func unfitWeights(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnfit, fmt.Errorf(format, args...))
}

const (
	// maxTensors and maxHeaders bound what a version's headers take of memory: its tensors, and the
	// bytes of all headers together.
	maxTensors = 1 << 20
	maxHeaders = 64 << 20
	// maxIndex bounds the file that says which shard holds which tensor, in bytes.
	maxIndex = 64 << 20
	// maxNamed is how many tensors an error names.
	maxNamed = 5
)

var (
	// indexNames are those of indexes: model.safetensors.index.json, and
	// model.safetensors.index.fp16.json of a variant.
	indexNames = regexp.MustCompile(`\.safetensors\.index(\.[^.]+)?\.json$`)
	// oddNames are those of tensors that nobody who loads a version would take for any,
	// and nobody who checks it.
	oddNames = regexp.MustCompile(`(?i)\.safetensors([-_.][0-9]+[-_.]of[-_.][0-9]+)?$`)
)

// inspection judges the files of a version while they are read for their digests.
// Nothing is read twice for it.
type inspection struct {
	allow   []string
	files   []*safetensors.File // without their bytes
	indexes map[string][]byte
	tensors int
	headers int64
	strange []string // elements that are no number, as sentences
	more    int      // of them that are not in strange
}

func (i *inspection) allows(exception string) bool { return slices.Contains(i.allow, exception) }

// begin reads the header of a file, and gives what is to see the file's bytes; nil for a file that
// nothing is asked of. done is called behind the last byte.
func (i *inspection) begin(name string, r io.ReaderAt, size int64) (sink io.Writer, done func(), err error) {
	switch {
	case path.Ext(name) == tensorsExtension:
		header, err := validate(r, size)
		if err != nil {
			return nil, nil, err
		}
		file := &safetensors.File{Name: name, Size: size, Header: header}
		i.tensors, i.headers = i.tensors+len(header.Tensors), i.headers+file.DataOffset()
		if i.tensors > maxTensors || i.headers > maxHeaders {
			return nil, nil, unfitWeights("more than %d tensors, or more than %d bytes of headers", maxTensors,
				maxHeaders)
		}
		i.files = append(i.files, file)
		if i.allows(AllowNotFinite) {
			return nil, nil, nil
		}
		numbers := safetensors.NewNumbers(header)
		return numbers, func() { i.note(name, numbers.List()) }, nil
	case oddNames.MatchString(name):
		return nil, nil, unfitWeights("file %.140s: a file of tensors is called …%s", name, tensorsExtension)
	case indexNames.MatchString(name):
		if size > maxIndex {
			return nil, nil, unfitWeights("%s has %d bytes (limit %d)", name, size, int64(maxIndex))
		}
		text := &bytes.Buffer{}
		return text, func() {
			if i.indexes == nil {
				i.indexes = map[string][]byte{}
			}
			i.indexes[name] = text.Bytes()
		}, nil
	}
	return nil, nil, nil
}

func (i *inspection) note(file string, found []safetensors.NotFinite) {
	for _, f := range found {
		if len(i.strange) == maxNamed {
			i.more++
			continue
		}
		i.strange = append(i.strange, fmt.Sprintf("file %s: %s", file, f))
	}
}

// judge says what is wrong with the files together, once all of them are read.
// The errors are ErrUnfit.
func (i *inspection) judge() (*safetensors.Checkpoint, error) {
	checkpoint, err := safetensors.NewCheckpoint(i.files...)
	if err != nil {
		return nil, unfitWeights("%w", err)
	}
	if err := i.complete(checkpoint); err != nil {
		return nil, unfitWeights("%w", err)
	}
	if len(i.strange) > 0 {
		return nil, unfitWeights("%s; allow %q to publish them", some(i.strange, i.more), AllowNotFinite)
	}
	return checkpoint, nil
}

// complete checks that the files are all of a model's, by their names and indexes, and
// that something is in them.
func (i *inspection) complete(checkpoint *safetensors.Checkpoint) error {
	if i.tensors == 0 {
		return errors.New("the files hold no tensors")
	}
	if !i.allows(AllowEmpty) {
		for _, file := range i.files {
			for _, t := range file.Tensors {
				if t.Size == 0 {
					return fmt.Errorf("tensor %.200q of file %s has no elements (shape %v): gather it before it is saved, or allow %q",
						t.Name, file.Name, t.Shape, AllowEmpty)
				}
			}
		}
	}
	if err := checkShards(i.files); err != nil {
		return err
	}
	return checkpoint.CheckIndexes(i.indexes)
}

// shardNames are what trainers call a file of several: model-00001-of-00004.safetensors, with a
// variant's name behind it, or model_world_size_4_rank_0.safetensors. They count from 0 or from 1.
var shardNames = []*regexp.Regexp{
	regexp.MustCompile(`^(?P<set>.*)[-_.](?P<number>[0-9]{1,9})[-_.]of[-_.](?P<total>[0-9]{1,9})(?P<variant>|\..*)\.safetensors$`),
	regexp.MustCompile(`^(?P<set>.*)world_size_(?P<total>[0-9]{1,9})_rank_(?P<number>[0-9]{1,9})(?P<variant>|\..*)\.safetensors$`),
}

// shardSet are the files that are whole together.
type shardSet struct{ name, total, variant string }

// shardOf reads a file's name; ok is false for one that is none of several.
func shardOf(name string) (set shardSet, number int, ok bool) {
	for _, names := range shardNames {
		m := names.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		part := func(group string) string { return m[names.SubexpIndex(group)] }
		number, err := strconv.Atoi(part("number"))
		return shardSet{part("set"), part("total"), part("variant")}, number, err == nil
	}
	return shardSet{}, 0, false
}

// checkShards checks that files which call themselves one of several have
// all the others beside them.
func checkShards(files []*safetensors.File) error {
	numbers := map[shardSet][]int{}
	for _, file := range files {
		if set, n, ok := shardOf(file.Name); ok {
			numbers[set] = append(numbers[set], n)
		}
	}
	for set, present := range numbers {
		total, err := strconv.Atoi(set.total)
		if err != nil {
			return err
		}
		slices.Sort(present)
		first, last := present[0], present[len(present)-1]
		if first > 1 || last > total || len(present) != total || last-first+1 != total {
			return fmt.Errorf("%d of the %s files %s-…-of-%s%s are there, and the model is not whole without the others",
				len(present), set.total, set.name, set.total, set.variant+tensorsExtension)
		}
	}
	return nil
}

// follows checks that a version's tensors are those of the version that is current, by
// name, type and shape. Where that one is later, or its headers cannot be read any more,
// there is nothing to compare.
func (i *inspection) follows(ctx context.Context, s storage.Store, policy string, version int64,
	next *safetensors.Checkpoint) error {
	if i.allows(AllowOtherTensors) {
		return nil
	}
	present, _, err := loadPointer(ctx, s, policy)
	if errors.Is(err, storage.ErrNotFound) || err == nil && present.Version >= version {
		return nil
	}
	if err != nil {
		return err
	}
	manifest, err := fetchManifest(ctx, s, policy, present.Version)
	var before stored
	if err == nil {
		before, err = openTensors(ctx, s, manifest)
		err = errors.Join(err, before.close())
	}
	if storage.IsUnusable(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return compare(before.Checkpoint, next, present.Version)
}

// compare names what two versions' tensors differ in, but for their elements.
func compare(before, next *safetensors.Checkpoint, version int64) error {
	var differences []string
	more := 0
	add := func(format string, args ...any) {
		if len(differences) == maxNamed {
			more++
			return
		}
		differences = append(differences, fmt.Sprintf(format, args...))
	}
	for _, file := range next.Files {
		for _, t := range file.Tensors {
			old, known := before.Tensor(t.Name)
			switch {
			case !known:
				add("tensor %.200q is new", t.Name)
			case old.Dtype != t.Dtype:
				add("tensor %.200q is %s, and was %s", t.Name, t.Dtype, old.Dtype)
			case !slices.Equal(old.Shape, t.Shape):
				add("tensor %.200q has the shape %v, and had %v", t.Name, t.Shape, old.Shape)
			}
		}
	}
	for _, file := range before.Files {
		for _, t := range file.Tensors {
			if _, known := next.Tensor(t.Name); !known {
				add("tensor %.200q is missing", t.Name)
			}
		}
	}
	if len(differences) == 0 {
		return nil
	}
	return unfitWeights("%s against version %d; allow %q to publish another model under this name",
		some(differences, more), version, AllowOtherTensors)
}

// some joins findings of which more were left out.
func some(findings []string, more int) string {
	text := strings.Join(findings, "; ")
	if more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}
