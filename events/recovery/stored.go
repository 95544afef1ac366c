package recovery

import (
	"context"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// Stored finds the segments of a run in the store, when the catalogue that lists them is lost.
func Stored(ctx context.Context, store storage.Store, run string) (sealed []events.SegmentSealed, err error) {
	for info, err := range store.List(ctx, "runs/"+run+"/log/") {
		if err != nil {
			return nil, err
		}
		data, err := store.Get(ctx, info.Key)
		if err != nil {
			return nil, err
		}
		segment, err := storage.OpenSegment(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", info.Key, err)
		}
		for _, err := range segment.Records() { // nobody else vouches for the file
			if err != nil {
				return nil, fmt.Errorf("%s: %w", info.Key, err)
			}
		}
		sealed = append(sealed, events.SegmentSealed{
			First: uint64(segment.First), Last: uint64(segment.Last),
			Segment:  storage.Ref{Key: info.Key, SHA256: storage.Digest(data), Size: int64(len(data))},
			Previous: segment.Previous,
		})
	}
	return chained(sealed), nil
}

// chained picks, of segments that were found, those that follow each other from the first event on
// and lead farthest: two that sealed at once, and one that died before it stated its segment, leave
// others, on which nothing follows.
func chained(found []events.SegmentSealed) []events.SegmentSealed {
	before := func(s events.SegmentSealed) int {
		return slices.IndexFunc(found, func(p events.SegmentSealed) bool {
			return p.Segment.SHA256 == s.Previous &&
				p.Last+1 == s.First
		})
	}
	var best []events.SegmentSealed
	for _, s := range found {
		if len(best) > 0 && s.Last <= best[len(best)-1].Last {
			continue
		}
		links := []events.SegmentSealed{s}
		for i := before(s); i >= 0 && found[i].Last < s.First; i = before(s) {
			s = found[i]
			links = append(links, s)
		}
		if s.First == 1 && s.Previous == "" {
			slices.Reverse(links)
			best = links
		}
	}
	return best
}
