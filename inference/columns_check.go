package inference

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/rondo-rl/rondo/events/runfile"
)

// CheckColumn refuses a column whose file is not what [Response.Columns] makes for a run that
// wants it, by its shape, its bounds, and the tokens of its spans: ids are a turn's, behind a
// prompt of so many. What a column says cannot be proved, but it cannot lead who reads it
// beyond its rows or its model.
func CheckColumn(want *runfile.TokenColumns, c Column, prompt int, ids []int32) error {
	var rows int
	var err error
	switch {
	case want != nil && c.Name == runfile.ColumnTopLogprobs && want.TopLogprobs > 0:
		rows, err = checkTops(c.File, want.TopLogprobs)
	case want != nil && c.Name == runfile.ColumnSamplingMask && want.SamplingMask:
		return checkMasks(c, prompt, ids)
	case want != nil && c.Name == runfile.ColumnRoutedExperts && want.RoutedExperts != nil:
		rows, err = checkExperts(c.File, *want.RoutedExperts)
	default:
		return fmt.Errorf("the run asks for no %q", c.Name)
	}
	if err != nil {
		return err
	}
	return c.checkSpans(rows, prompt, len(ids))
}

// checkSpans refuses spans of rows that there are not, and of tokens of which the column says
// nothing: what was likely is known of sampled tokens alone.
func (c Column) checkSpans(rows, prompt, sampled int) error {
	first := prompt
	if c.Name == runfile.ColumnRoutedExperts {
		first = 0
	}
	for _, s := range c.Spans {
		if s.Row < 0 || s.Length < 1 || s.Row+s.Length > rows || s.Start < first || s.Start+s.Length > prompt+sampled {
			return fmt.Errorf("rows %d to %d of %d for the tokens from %d on of %d", s.Row, s.Row+s.Length, rows,
				s.Start, prompt+sampled)
		}
	}
	return nil
}

// rowsIn are the rows of so many bytes in a file that begins as newNPY writes it, and their data.
func rowsIn(file []byte, row int, header func(rows int) *npy) (rows int, data []byte, err error) {
	const step = 64
	for size := step; size <= 4*step && size <= len(file); size += step {
		data := file[size:]
		if rows := len(data) / row; len(data)%row == 0 && bytes.Equal(header(rows).data, file[:size]) {
			return rows, data, nil
		}
	}
	return 0, nil, fmt.Errorf("%d bytes that are no file of the run's columns", len(file))
}

func checkTops(file []byte, k int) (int, error) {
	rows, data, err := rowsIn(file, 8*k, func(rows int) *npy { return newNPY(topKind, rows, k) })
	for ; err == nil && len(data) > 0; data = data[8:] {
		id, logprob := int32(binary.LittleEndian.Uint32(data)),
			math.Float32frombits(binary.LittleEndian.Uint32(data[4:]))
		if id < -1 || !(logprob <= 0) {
			err = fmt.Errorf("token %d with the log-probability %g", id, logprob)
		}
	}
	return rows, err
}

func checkExperts(file []byte, want runfile.RoutedExperts) (int, error) {
	row := want.Layers * want.TopK * want.Width()
	rows, data, err := rowsIn(file, row, func(rows int) *npy {
		return newNPY(expertKind(want), rows,
			want.Layers, want.TopK)
	})
	for ; err == nil && len(data) > 0; data = data[want.Width():] {
		if id := number(data, want.Width(), false); id >= int64(want.Experts) {
			err = fmt.Errorf("expert %d of %d", id, want.Experts)
		}
	}
	return rows, err
}

func checkMasks(c Column, prompt int, ids []int32) error {
	n, data, err := rowsIn(c.File, 4, func(n int) *npy { return newNPY(maskKind, n) })
	if err != nil {
		return err
	}
	at := func(i int) int { return int(int32(binary.LittleEndian.Uint32(data[4*i:]))) }
	if n == 0 || at(0) < 1 || at(0) > n-1 {
		return fmt.Errorf("%d numbers that are no sampling masks", n)
	}
	rows, next := at(0), 1+at(0)
	if err := c.checkSpans(rows, prompt, len(ids)); err != nil {
		return err
	}
	masks := make([][]int32, rows)
	for i := range rows {
		left := at(1 + i)
		if left < 1 || left > n-next {
			return fmt.Errorf("%d ids in a sampling mask, where %d are left", left, n-next)
		}
		for k := range left {
			masks[i] = append(masks[i], int32(at(next+k)))
		}
		next += left
	}
	if next != n {
		return fmt.Errorf("%d ids behind the sampling masks", n-next)
	}
	for _, s := range c.Spans {
		for i := range s.Length {
			if !slices.Contains(masks[s.Row+i], ids[s.Start-prompt+i]) {
				return fmt.Errorf("token %d is not in its sampling mask", s.Start+i)
			}
		}
	}
	return nil
}
