package storage

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/rondo-rl/rondo/storage/tokencheck"
)

const (
	// teacherColumn begins the names of their columns.
	teacherColumn = "logprobs_"
	// teachersKey is the metadata that names them, with commas between.
	teachersKey = "teachers"
	maxTeachers = 8
	// columnsKey is the metadata that names token columns, and the name of
	// the column of all of them.
	columnsKey = "token_columns"
	// constrainedKey is the metadata that counts constrained tokens, and the name of their column.
	constrainedKey = "constrained"
	// rolesKey is the metadata that names the roles of the run's episodes, with commas between.
	rolesKey = "roles"
	maxRoles = 16
)

var teacherName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// checkTeachers checks the names of a batch's teachers, which are parts of its columns' names.
func checkTeachers(names []string) error {
	if len(names) > maxTeachers {
		return fmt.Errorf("%d teachers (limit %d)", len(names), maxTeachers)
	}
	for i, name := range names {
		if !teacherName.MatchString(name) || slices.Contains(names[:i], name) {
			return fmt.Errorf("teacher %.80q appears twice, or is no name of letters, digits, - and _", name)
		}
	}
	return nil
}

// validateTeachers checks that each teacher says something of each token, and one that takes hints
// of the tokens of their spans: NaN is nothing.
func (s *Sample) validateTeachers(names, hinted []string) error {
	if len(s.TeacherLogprobs) != len(names) {
		return fmt.Errorf("log-probabilities of %d teachers, the batch has %d", len(s.TeacherLogprobs), len(names))
	}
	var spans []bool
	for i, values := range s.TeacherLogprobs {
		if len(values) != len(s.Tokens) {
			return fmt.Errorf("%d log-probabilities of teacher %s for %d tokens", len(values), names[i], len(s.Tokens))
		}
		takes := slices.Contains(hinted, names[i])
		if takes && spans == nil {
			spans = s.hinted()
		}
		for k, v := range values {
			nothing := v != v
			if takes && nothing {
				continue
			}
			if !(v <= 0) || v-v != 0 || takes && !spans[k] {
				return fmt.Errorf("token %d has the log-probability %v of teacher %s", k, v, names[i])
			}
		}
	}
	return nil
}

// form is what a batch has beside the columns that all have.
type form struct {
	teachers     []string
	tokenColumns bool
	hints        bool
	roles        bool
	constrained  bool
	images       bool
}

func (b *Batch) form() form {
	return form{b.Teachers, len(b.columnNames()) > 0, b.Hinter != "", len(b.Roles) > 0,
		b.constrained() > 0, b.images() > 0}
}

// images counts those of the samples.
func (b *Batch) images() (n int) {
	for i := range b.Samples {
		n += len(b.Samples[i].Images)
	}
	return n
}

// constrained counts the tokens that were sampled under a constraint.
func (b *Batch) constrained() (n int) {
	for i := range b.Samples {
		n += countTrue(b.Samples[i].Constrained)
	}
	return n
}

// columns are those of the file, in their order.
func (f form) columns() []column[sampleRow] {
	columns := slices.Clip(sampleColumns)
	if f.roles {
		columns = append(columns, stringColumn("role", func(r *sampleRow) *string { return &r.Role }))
	}
	if f.tokenColumns {
		columns = append(columns, stringColumn(columnsKey, func(r *sampleRow) *string { return &r.columns }))
	}
	if f.hints {
		columns = append(columns, stringColumn(hintsKey, func(r *sampleRow) *string { return &r.hints }))
	}
	if f.constrained {
		columns = append(columns, boolListColumn(constrainedKey, func(r *sampleRow) *[]bool { return &r.constrained }))
	}
	if f.images {
		columns = append(columns, stringColumn(imagesKey, func(r *sampleRow) *string { return &r.images }))
	}
	for i, name := range f.teachers {
		columns = append(columns, float32ListColumn(teacherColumn+name,
			func(r *sampleRow) *[]float32 { return &r.TeacherLogprobs[i] }))
	}
	return columns
}

// formOfBatch says what a file's metadata name. Whether the file has it is checked when it is read.
func formOfBatch(file []byte) (f form, err error) {
	meta, err := namedBy(file)
	if err != nil {
		return f, err
	}
	_, f.tokenColumns = meta.GetValue(columnsKey)
	_, f.constrained = meta.GetValue(constrainedKey)
	_, f.images = meta.GetValue(imagesKey)
	_, f.roles = meta.GetValue(rolesKey)
	_, f.hints = meta.GetValue(hintsKey)
	names, there := meta.GetValue(teachersKey)
	if !there {
		return f, nil
	}
	f.teachers = strings.Split(names, ",")
	if err := checkTeachers(f.teachers); err != nil {
		return f, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return f, nil
}

// namedBy are the metadata of a file, of which nothing is checked yet.
func namedBy(file []byte) (meta arrow.Metadata, err error) {
	defer invalid(&err)
	if len(file) > MaxArrowFile {
		return meta, fmt.Errorf("%w: a file of %d bytes (limit %d)", ErrTooLarge, len(file), MaxArrowFile)
	}
	if err := checkArrow(file, 1); err != nil {
		return meta, fmt.Errorf("%w: not a valid Arrow file: %w", ErrCorrupt, err)
	}
	reader, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		return meta, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	defer reader.Close()
	return reader.Schema().Metadata(), nil
}

// Hint is a text about the tokens [Start, Start+Length) of a sample, all sampled in Turn. A teacher
// that takes hints scores them with the hint inserted before the token At.
type Hint struct {
	Turn   int32   `json:"turn"`
	Start  int32   `json:"start"`
	Length int32   `json:"length"`
	At     int32   `json:"at"`
	Text   string  `json:"text,omitempty"`   // absent where a batch has more texts than its file may hold
	Tokens []int32 `json:"tokens,omitempty"` // inserted for the text; absent where the teacher's server makes them
}

const (
	// hintsKey is the metadata that names the hinter, and the name of the column of the hints.
	hintsKey = "hints"
	// hintedKey is the metadata that names the teachers that take the hints, with commas between.
	hintedKey = "hinted"
	// maxHints bounds those of a sample.
	maxHints = 64
)

// checkHinter checks who has stated the hints of a batch, and which of its teachers take them.
func (b *Batch) checkHinter() error {
	if b.Hinter != "" && !teacherName.MatchString(b.Hinter) {
		return fmt.Errorf("hinter %.80q is no name of letters, digits, - and _", b.Hinter)
	}
	if b.Hinter == "" && len(b.Hinted) > 0 {
		return errors.New("teachers take hints of nobody")
	}
	for i, name := range b.Hinted {
		if !slices.Contains(b.Teachers, name) || slices.Contains(b.Hinted[:i], name) {
			return fmt.Errorf("teacher %.80q, which takes hints, appears twice or is none of the batch", name)
		}
	}
	return nil
}

// validateHints checks that a sample's hints are about sampled tokens, in their order.
func (s *Sample) validateHints(hinter string) error {
	if hinter == "" && len(s.Hints) > 0 || len(s.Hints) > maxHints {
		return fmt.Errorf("%d hints of %q (limit %d)", len(s.Hints), hinter, maxHints)
	}
	end := int64(0)
	for i, h := range s.Hints {
		if !follows(h.Start, h.Length, len(s.LossMask), &end) || h.Turn < 0 || h.At < 0 ||
			h.At > h.Start || !s.sampledAll(h) {
			return fmt.Errorf("hint %d (start %d, length %d, at %d, turn %d) is not about sampled tokens of %d behind the hint before it",
				i, h.Start, h.Length, h.At, h.Turn, len(s.LossMask))
		}
		if err := tokencheck.IDs(h.Tokens); err != nil {
			return fmt.Errorf("hint %d: %w", i, err)
		}
	}
	return nil
}

// sampledAll reports whether the tokens of a hint's span were all sampled, if
// only under a constraint.
func (s *Sample) sampledAll(h Hint) bool {
	for k := h.Start; k < h.Start+h.Length; k++ {
		if !s.LossMask[k] && (s.Constrained == nil || !s.Constrained[k]) {
			return false
		}
	}
	return true
}

// hinted says which tokens are in the span of a hint.
func (s *Sample) hinted() []bool {
	mask := make([]bool, len(s.Tokens))
	for _, h := range s.Hints {
		for k := range h.Length {
			mask[h.Start+k] = true
		}
	}
	return mask
}

// hintsText is the column of the hints; what holds nothing is the empty text.
func hintsText(hints []Hint) (string, error) {
	if len(hints) == 0 {
		return "", nil
	}
	return marshal(hints)
}
