package storage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// TokenColumn says where further numbers of tokens are, as the experts of a mixture that they
// were routed to: the tokens from Start on, Length of them, have the rows from Row on of an
// object. Nothing is known of tokens that no TokenColumn of a name is about.
// docs/guide/answers.md says what the objects hold.
type TokenColumn struct {
	Name   string `json:"name" jsonschema:"pattern=^[a-z0-9_]{1\\,64}$"`
	Start  int32  `json:"start" jsonschema:"minimum=0"`
	Length int32  `json:"length" jsonschema:"minimum=1"`
	Row    int32  `json:"row,omitempty" jsonschema:"minimum=0"`
	Object Ref    `json:"object"`
}

const (
	// MaxTokenColumns bounds those of a message or a turn.
	MaxTokenColumns = 4096
	maxColumnNames  = 16
)

var columnName = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// end is the first token behind it.
func (c TokenColumn) end() int64 { return int64(c.Start) + int64(c.Length) }

// check refuses what names no rows of a blob, or tokens behind those that there are.
func (c TokenColumn) check(tokens int) error {
	switch {
	case !columnName.MatchString(c.Name):
		return fmt.Errorf("token column %.80q is no name of a-z, digits and _", c.Name)
	case c.Start < 0 || c.Length < 1 || c.Row < 0 || c.end() > int64(tokens):
		return fmt.Errorf("token column %s (start %d, length %d, row %d) does not fit in %d tokens", c.Name, c.Start,
			c.Length, c.Row, tokens)
	}
	if err := c.Object.Validate(); err != nil {
		return fmt.Errorf("token column %s: %w", c.Name, err)
	}
	if c.Object.Key != BlobKey(c.Object.SHA256) {
		return fmt.Errorf("token column %s: object %.100s is no blob", c.Name, c.Object.Key)
	}
	return nil
}

// CheckTokenColumns checks those of a turn, whose prompt and answer have so many tokens together.
func CheckTokenColumns(columns []TokenColumn, tokens int) error {
	if len(columns) > MaxTokenColumns {
		return fmt.Errorf("%d token columns (limit %d)", len(columns), MaxTokenColumns)
	}
	return checkColumns(columns, tokens)
}

// checkColumns checks those of a sample or a turn: by name, each name's
// ascending and not overlapping.
func checkColumns(columns []TokenColumn, tokens int) error {
	ends := map[string]int64{}
	for _, c := range columns {
		if err := c.check(tokens); err != nil {
			return err
		}
		if ends[c.Name] == 0 && len(ends) >= maxColumnNames {
			return fmt.Errorf("more than %d kinds of token columns", maxColumnNames)
		}
		if int64(c.Start) < ends[c.Name] {
			return fmt.Errorf("token column %s: token %d has two rows", c.Name, c.Start)
		}
		ends[c.Name] = c.end()
	}
	return nil
}

// validateColumns checks that messages' columns are of tokens that their segments have by then.
func (t *Trajectory) validateColumns() error {
	tokens := map[int32]int{}
	for i := range t.Messages {
		m := &t.Messages[i]
		tokens[m.Segment] += len(m.TokenIDs)
		if len(m.Columns) > MaxTokenColumns {
			return fmt.Errorf("message %d: %d token columns (limit %d)", i, len(m.Columns), MaxTokenColumns)
		}
		if err := checkColumns(m.Columns, tokens[m.Segment]); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// addColumns adds what a message's columns say of a sample's tokens. What was said of a token first
// stays: that is what was computed when it was sampled.
func addColumns(columns, more []TokenColumn) []TokenColumn {
	for _, c := range more {
		covered := int64(0)
		for i := len(columns) - 1; i >= 0; i-- {
			if columns[i].Name == c.Name {
				covered = columns[i].end()
				break
			}
		}
		if known := covered - int64(c.Start); known > 0 {
			if known >= int64(c.Length) {
				continue
			}
			c.Start, c.Row, c.Length = c.Start+int32(known), c.Row+int32(known), c.Length-int32(known)
		}
		columns = append(columns, c)
	}
	return columns
}

func sortColumns(columns []TokenColumn) {
	slices.SortStableFunc(columns, func(a, b TokenColumn) int { return cmp.Compare(a.Name, b.Name) })
}

// columnsText is how files spell columns; "" where there are none.
func columnsText(columns []TokenColumn) (string, error) {
	if len(columns) == 0 {
		return "", nil
	}
	return marshal(columns)
}

// parseList reads a list of JSON, named for errors; "" is an empty one, too.
func parseList[T any](what, text string) (list []T, err error) {
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list, nil
}

// columnNames are the names of a batch's token columns.
func (b *Batch) columnNames() (names []string) {
	for i := range b.Samples {
		for _, c := range b.Samples[i].Columns {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
