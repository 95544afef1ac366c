package querysampler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// fate is what became of a group, a letter each in state.Fates.
type fate struct {
	letter byte
	name   string // as in GroupDropped.Filter
	advice string
}

// batched is the fate of the groups that a trainer gets.
const batched = '+'

// fates are those of groups that no trainer gets.
var fates = []fate{
	{'z', "zero_variance",
		"the tasks are too easy or too hard for this policy, so that all rewards of a group are equal: change the tasks, use a curriculum, or enlarge group_size"},
	{'r', "pass_rate", "the tasks are too easy or too hard for filters.pass_rate: change the tasks, or widen it"},
	{'u', "untrainable",
		"the feed's filters mask every rollout of these groups: look at filters, min_reward and staleness.require_versions"},
	{'m', "min_survivors", "too many rollouts of these groups failed: look at the failures in `rondo run show`"},
	{'f', "all failed", "every rollout of these groups failed: look at the failures in `rondo run show`"},
	{'s', "stale", "the groups are too old when they could be batched: raise staleness.max, or give the trainer more room"},
	{'x', "other", "`rondo run show` names the filters"},
}

// noteFate appends what became of a group of the run's own to the window of groups.
func (d *Decider) noteFate(s *state, group string, letter byte) {
	if size := d.cfg.Limits.NoSignalGroups; size > 0 && d.breaks() && !events.External(group) {
		s.Fates.add(letter, size)
	}
}

// fateOf is the letter of a group that the first feed dropped.
func fateOf(dropped events.GroupDropped) byte {
	name := dropped.Filter
	if dropped.Reason == events.DropStale {
		name = "stale"
	}
	i := slices.IndexFunc(fates, func(f fate) bool { return f.name == name })
	if i < 0 {
		i = len(fates) - 1
	}
	return fates[i].letter
}

// noSignal: of a full window of groups, at most one in 20 was batched. Its window is much longer
// than that of failures, as tasks that are too hard at first may become easier.
func (d *Decider) noSignal(s state) (class, why string) {
	size, useful := d.cfg.Limits.NoSignalGroups, s.Fates.count(string(batched))
	if size == 0 || len(s.Fates) < size || 20*useful > size {
		return "", ""
	}
	var parts []string
	most, advice := 0, ""
	for _, f := range fates {
		n := s.Fates.count(string(f.letter))
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", f.name, n))
		}
		if n > most {
			most, advice = n, f.advice
		}
	}
	if !s.Called {
		advice += ". No turn of the run has called a tool: see whether the inference server parses tool calls"
	}
	return events.PauseNoSignal,
		fmt.Sprintf("%d of the last %d groups were batched; the others were dropped (%s): %s. Then `rondo run resume %s`",
			useful, size, strings.Join(parts, ", "), advice, d.run)
}
