package swebench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// byteOrderMark begins files of some editors and exports. It is no part of the first row.
var byteOrderMark = []byte("\xef\xbb\xbf")

// readRows gives the JSON objects of a source, one after the other: of an array, or of lines. An
// object may go on over further lines; a line that begins with "{" begins the next one, so that one
// that is broken takes no other with it. limit bounds an object in bytes.
func readRows(from io.Reader, limit int, each func(row json.RawMessage, wrong error)) error {
	buffered := bufio.NewReader(from)
	if mark, err := buffered.Peek(len(byteOrderMark)); err == nil && bytes.Equal(mark, byteOrderMark) {
		buffered.Discard(len(byteOrderMark))
	}
	rows := 0
	give := func(row json.RawMessage, wrong error) error {
		rows++
		each(row, wrong)
		return tooMany(rows)
	}
	if first, err := firstByte(buffered); err == nil && first == '[' {
		return readArray(buffered, give)
	}
	lines := bufio.NewScanner(buffered)
	lines.Buffer(nil, limit)
	var object []byte
	for lines.Scan() {
		line := lines.Bytes()
		if bytes.HasPrefix(line, []byte("{")) {
			if err := giveObjects(object, give); err != nil {
				return err
			}
			object = object[:0]
		}
		if object = append(append(object, line...), '\n'); len(object) > limit {
			return fmt.Errorf("row %d: more than %d bytes", rows+1, limit)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("row %d: more than %d bytes", rows+1, limit)
	}
	return errors.Join(lines.Err(), giveObjects(object, give))
}

// readArray gives the elements of a JSON array. What is no JSON within it leaves no row that could
// be told from the others.
func readArray(from io.Reader, give func(json.RawMessage, error) error) error {
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(withoutNaN(text), &list); err != nil {
		return err
	}
	for _, row := range list {
		if err := give(row, nil); err != nil {
			return err
		}
	}
	return nil
}

// giveObjects gives those of a text that holds nothing else. Behind what is
// no JSON nothing is read.
func giveObjects(text []byte, give func(json.RawMessage, error) error) error {
	decoder := json.NewDecoder(bytes.NewReader(withoutNaN(text)))
	for {
		var row json.RawMessage
		err := decoder.Decode(&row)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if stop := give(row, err); stop != nil || err != nil {
			return stop
		}
	}
}

// notNumbers are what Python writes of values that a table lacks, though JSON has no such words.
var notNumbers = []string{"-Infinity", "Infinity", "NaN"}

// withoutNaN is a text with null in place of notNumbers outside of strings.
func withoutNaN(text []byte) []byte {
	if !slices.ContainsFunc(notNumbers, func(word string) bool { return bytes.Contains(text, []byte(word)) }) {
		return text
	}
	var kept []byte
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && i+1 < len(text):
			kept = append(kept, c)
			i++
		case !quoted:
			is := func(word string) bool { return bytes.HasPrefix(text[i:], []byte(word)) }
			if word := slices.IndexFunc(notNumbers, is); word >= 0 {
				kept = append(kept, "null"...)
				i += len(notNumbers[word]) - 1
				continue
			}
		}
		kept = append(kept, text[i])
	}
	return kept
}

// UnmarshalJSON reads the fields that a row has; the error names the one that is wrong. Others than
// these are of no account. A version may be a number, as 1.0 in place of "1.0".
func (i *Instance) UnmarshalJSON(data []byte) error {
	var row map[string]json.RawMessage
	if err := json.Unmarshal(data, &row); err != nil {
		return errors.New("want a JSON object")
	}
	for _, f := range []struct {
		name string
		text *string
	}{
		{"instance_id", &i.ID}, {"repo", &i.Repo}, {"base_commit", &i.BaseCommit}, {"version", &i.Version},
		{"problem_statement", &i.Problem}, {"patch", &i.Patch}, {"test_patch", &i.TestPatch},
		{"log_parser", &i.LogParser},
		{"eval_type", &i.EvalType}, {"eval_script", &i.EvalScript}, {"test_cmd", &i.TestCommand},
		{"docker_image", &i.Image},
	} {
		value := row[f.name]
		var number json.Number
		switch {
		case value == nil || json.Unmarshal(value, f.text) == nil:
		case f.name == "version" && json.Unmarshal(value, &number) == nil:
			*f.text = number.String()
		default:
			return fmt.Errorf("%s: want text, not %.40s", f.name, value)
		}
	}
	for name, list := range map[string]*Names{"FAIL_TO_PASS": &i.FailToPass, "PASS_TO_PASS": &i.PassToPass} {
		if value := row[name]; value != nil && json.Unmarshal(value, list) != nil {
			return fmt.Errorf("%s: want a JSON list of texts, or one inside of a text, not %.40s", name, value)
		}
	}
	return nil
}

// instanceOf reads a row. What is wrong with it names its number, from 1, and its instance, if
// it says which one it is.
func instanceOf(number int, row json.RawMessage, wrong error) (one Instance, err error) {
	if err = wrong; err == nil {
		err = json.Unmarshal(row, &one)
	}
	if err != nil {
		return one, fmt.Errorf("row %d %.100s: %w", number, one.ID, err)
	}
	return one, nil
}
