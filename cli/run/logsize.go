package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events/eventlog"
)

// logSize is how full a run's stream is, and how far it is archived.
type logSize struct {
	Bytes    uint64  `json:"bytes"`
	MaxBytes int64   `json:"max_bytes"`
	Fill     float64 `json:"fill"` // 0 to 1
	// Archived is the last sequence in the archive, 0 for none, and ArchivedAt
	// when the archive came to it.
	Archived   uint64     `json:"archived"`
	ArchivedAt *time.Time `json:"archived_at,omitempty"`
	last       uint64
}

// logSizeOf reads the size of a run's log; nil where its stream is deleted.
func logSizeOf(ctx context.Context, log *eventlog.Log, run string) (*logSize, error) {
	bytes, most, err := log.Size(ctx, run)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	archived, err := log.Archived(ctx, run)
	if err != nil {
		return nil, err
	}
	s := &logSize{Bytes: bytes, MaxBytes: most, Archived: archived.Through, last: archived.Last}
	if most > 0 {
		s.Fill = float64(bytes) / float64(most)
	}
	if archived.Through > 0 {
		s.ArchivedAt = &archived.At
	}
	return s, nil
}

func (s *logSize) String() string {
	text := fmt.Sprintf("%.1f MiB", float64(s.Bytes)/(1<<20))
	if s.MaxBytes > 0 {
		text += fmt.Sprintf(" of %.0f MiB (%.1f %%)", float64(s.MaxBytes)/(1<<20), 100*s.Fill)
	}
	if s.ArchivedAt == nil {
		return text + ", nothing archived"
	}
	return text + fmt.Sprintf(", archived to event %d of %d at %s", s.Archived, s.last,
		s.ArchivedAt.UTC().Format(time.RFC3339))
}
