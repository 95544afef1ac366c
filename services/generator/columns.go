package generator

import (
	"context"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/storage"
)

// routed is how many tokens of the current segment have their experts on the log, from its first one on.
func routed(r *events.Rollout) int {
	for i := len(r.Turns) - 1; i >= 0; i-- {
		end := 0
		for _, c := range r.Turns[i].Columns {
			if c.Name == runfile.ColumnRoutedExperts {
				end = int(c.Start + c.Length)
			}
		}
		if end > 0 || r.Turns[i].NewSegment {
			return end
		}
	}
	return 0
}

// keepColumns stores what an answer has beside its tokens, and has the turn name it. What the run requires and the answer lacks is a failed try.
func (s *Service) keepColumns(ctx context.Context, want *runfile.TokenColumns, t *events.TurnSampled, answer *fleet.Answer) error {
	if want == nil || t.TextOnly {
		return nil
	}
	columns, lacks := answer.Response.Columns(want, len(answer.Prompt), t.TokenIDs)
	if want.Required && len(lacks) > 0 {
		return &inference.Failure{Class: events.ClassBadResponse, Err: fmt.Errorf("%s: the answer lacks %s, or what it says does not fit its tokens; token_columns.required demands them",
			answer.Endpoint, strings.Join(lacks, ", "))}
	}
	t.Lacks = append(t.Lacks, lacks...)
	for _, c := range columns {
		if len(t.Columns)+len(c.Spans) > storage.MaxTokenColumns {
			t.Lacks = append(t.Lacks, c.Name)
			continue
		}
		ref, err := storage.PutBlob(ctx, s.log.Store(), c.File)
		if err != nil {
			return fmt.Errorf("store %s: %w", c.Name, err)
		}
		for _, span := range c.Spans {
			t.Columns = append(t.Columns, storage.TokenColumn{Name: c.Name, Start: int32(span.Start), Length: int32(span.Length), Row: int32(span.Row), Object: ref})
		}
	}
	return nil
}
