package storage

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/ipc"
)

const (
	// TaughtSchema is the version of a batch file with log-probabilities of teachers.
	TaughtSchema = "3"
	// ColumnedBatchSchema is that of one with token columns, whether it has teachers or not.
	ColumnedBatchSchema = "4"
	// teacherColumn begins the names of their columns.
	teacherColumn = "logprobs_"
	// teachersKey is the metadata that names them, with commas between.
	teachersKey = "teachers"
	maxTeachers = 8
	// columnsKey is the metadata that names token columns, and the name of the column of all of them.
	columnsKey = "token_columns"
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

// validateTeachers checks that each teacher says something of each token.
func (s *Sample) validateTeachers(names []string) error {
	if len(s.TeacherLogprobs) != len(names) {
		return fmt.Errorf("log-probabilities of %d teachers, the batch has %d", len(s.TeacherLogprobs), len(names))
	}
	for i, values := range s.TeacherLogprobs {
		if len(values) != len(s.Tokens) {
			return fmt.Errorf("%d log-probabilities of teacher %s for %d tokens", len(values), names[i], len(s.Tokens))
		}
		for k, v := range values {
			if !(v <= 0) || v-v != 0 {
				return fmt.Errorf("token %d has the log-probability %v of teacher %s", k, v, names[i])
			}
		}
	}
	return nil
}

// batchForm is the version and the columns of the file of a batch with some teachers, and with token columns. Without any they are what they were before there were these.
func batchForm(teachers []string, tokenColumns bool) (schema string, columns []column[sampleRow]) {
	schema, columns = BatchSchema, slices.Clip(sampleColumns)
	if len(teachers) > 0 {
		schema = TaughtSchema
	}
	if tokenColumns {
		schema, columns = ColumnedBatchSchema, append(columns, stringColumn(columnsKey, func(r *sampleRow) *string { return &r.columns }))
	}
	for i, name := range teachers {
		columns = append(columns, float32ListColumn(teacherColumn+name, func(r *sampleRow) *[]float32 { return &r.TeacherLogprobs[i] }))
	}
	return schema, columns
}

// formOfBatch says which teachers a file's metadata name, and whether they name token columns. Whether the file is one is checked when it is read.
func formOfBatch(file []byte) (teachers []string, tokenColumns bool, err error) {
	defer invalid(&err)
	if len(file) > MaxArrowFile {
		return nil, false, fmt.Errorf("%w: a file of %d bytes (limit %d)", ErrTooLarge, len(file), MaxArrowFile)
	}
	if err := checkArrow(file, 1); err != nil {
		return nil, false, fmt.Errorf("%w: not a valid Arrow file: %w", ErrCorrupt, err)
	}
	reader, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	defer reader.Close()
	_, tokenColumns = reader.Schema().Metadata().GetValue(columnsKey)
	names, there := reader.Schema().Metadata().GetValue(teachersKey)
	if !there {
		return nil, tokenColumns, nil
	}
	teachers = strings.Split(names, ",")
	if err := checkTeachers(teachers); err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return teachers, tokenColumns, nil
}
