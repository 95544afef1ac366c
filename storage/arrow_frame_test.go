package storage

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
)

// TestFramesAreTheLibrarys: a frame that is made of one with other texts has the bytes
// that the library writes.
func TestFramesAreTheLibrarys(t *testing.T) {
	var sets [][]arrow.Field
	for _, columns := range [][]column[messageRow]{messageColumns, messageColumns[:20]} {
		var fields []arrow.Field
		for _, c := range columns {
			fields = append(fields, c.field)
		}
		sets = append(sets, fields)
	}
	var fields []arrow.Field
	for _, c := range sampleColumns {
		fields = append(fields, c.field)
	}
	sets = append(sets, fields, fields[:1], nil)
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for round := range 40 {
				for n, fields := range sets {
					lengths := fmt.Sprint(round % 3)
					texts := arrow.NewMetadata([]string{"kind", "run_id", "empty", "task" + lengths}, []string{
						fmt.Sprintf("k%d%02d", worker, round),
						strings.Repeat(string(rune('a'+round%26)), round%5), "", "äöü" + lengths,
					})
					schema, batches := arrow.NewSchema(fields, &texts), 1+round%3
					want, err := writeFrame(schema, batches)
					if err != nil {
						t.Error(err)
						return
					}
					got, err := fileFrame(schema, batches)
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("columns %d, round %d: %d bytes, %v; the library writes %d others", n, round,
							len(got), err, len(want))
						return
					}
					clear(got) // it is the caller's
				}
			}
		})
	}
	all.Wait()
	if n := len(frames.known); n > maxFrames {
		t.Errorf("%d frames are kept", n)
	}
}
