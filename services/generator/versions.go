package generator

import (
	"context"
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// knownVersions marks the versions of a turn as unknown that its policy has not reached. The one at dispatch, and those before, it has.
func (s *Service) knownVersions(ctx context.Context, policy string, dispatched int64, t *events.TurnSampled) error {
	spans := slices.Clone(t.VersionSpans)
	if spans == nil {
		spans = []events.VersionSpan{{Version: t.PolicyVersion}}
	}
	known := map[int64]int64{}
	for i, span := range spans {
		if span.Version <= dispatched {
			continue
		}
		if _, asked := known[span.Version]; !asked {
			version, err := s.log.KnownVersion(ctx, policy, span.Version)
			if err != nil {
				return err
			}
			known[span.Version] = version
		}
		spans[i].Version = known[span.Version]
	}
	t.SetVersions(spans)
	return nil
}
