package fleet

import (
	"context"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/storage"
)

// Routed is how many tokens of the current segment have their experts on the log, from its first
// one on. turns end with that segment's.
func Routed(turns []events.TurnSampled) int {
	for i := len(turns) - 1; i >= 0; i-- {
		end := 0
		for _, c := range turns[i].Columns {
			if c.Name == runfile.ColumnRoutedExperts {
				end = int(c.Start + c.Length)
			}
		}
		if end > 0 || turns[i].NewSegment {
			return end
		}
	}
	return 0
}

// Keep stores what an answer has beside its tokens, and has its turn name it. What the run requires
// and the answer lacks is a failed try. routed is how many of the turn's tokens have their experts
// on the log already, for answers whose request could not leave them out.
func (a *Answer) Keep(ctx context.Context, store storage.Store, want *runfile.TokenColumns,
	t *events.TurnSampled, routed int) error {
	if want == nil || t.TextOnly {
		return nil
	}
	columns, lacks := a.Response.Columns(want, len(a.Prompt), t.TokenIDs, routed)
	if want.Required && len(lacks) > 0 {
		return &inference.Failure{Class: events.ClassBadResponse,
			Err: fmt.Errorf("%s: the answer lacks %s, or what it says does not fit its tokens; token_columns.required demands them",
				a.Endpoint, strings.Join(lacks, ", "))}
	}
	t.Lacks = append(t.Lacks, lacks...)
	for _, c := range columns {
		if len(t.Columns)+len(c.Spans) > storage.MaxTokenColumns {
			t.Lacks = append(t.Lacks, c.Name)
			continue
		}
		ref, err := storage.PutBlob(ctx, store, c.File)
		if err != nil {
			return fmt.Errorf("store %s: %w", c.Name, err)
		}
		for _, span := range c.Spans {
			t.Columns = append(t.Columns, storage.TokenColumn{Name: c.Name, Start: int32(span.Start),
				Length: int32(span.Length), Row: int32(span.Row), Object: ref})
		}
	}
	return nil
}
