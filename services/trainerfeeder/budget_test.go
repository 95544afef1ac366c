package trainerfeeder

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage"
)

// Groups of one rollout of 10, 20 or other numbers of tokens, in batches of at most 60.
func TestTokensPerBatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens []int
		want   []int // groups of each batch
	}{
		{"the next one does not fit", []int{20, 20, 30}, []int{2}},
		{"the budget is met exactly", []int{20, 40}, []int{2}},
		{"there is room for more", []int{20, 20, 19}, nil},
		{"one is longer than the budget", []int{100}, []int{1}},
		{"a longer one makes a batch of what is before it", []int{10, 100}, []int{1, 1}},
		{"oldest first, although a later one would fit", []int{50, 20, 10, 35, 60}, []int{1, 2, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newDesk(t, feed(func(f *runfile.Feed) { f.TokensPerBatch = 60 }), policy(runfile.StaleDrop, 9))
			for i, n := range c.tokens {
				k.group(int64(i+1), 0, ending{reward: 1, prompt: n - 7})
			}
			var got []int
			next := 1
			for range c.tokens {
				facts := k.Settle()
				if len(facts) == 0 {
					break
				}
				b := decidertest.Data[events.BatchReady](t, facts[0])
				got = append(got, len(b.Groups))
				for _, id := range b.Groups {
					if id != events.GroupID(int64(next)) {
						t.Errorf("step %d holds %v, want %s next", b.Step, b.Groups, events.GroupID(int64(next)))
					}
					next++
				}
				k.consumed(b.Step)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("batches of %v groups, want %v", got, c.want)
			}
		})
	}
}

// Masked members take nothing of the budget.
func TestMaskedMembersTakeNoTokens(t *testing.T) {
	k := newDesk(t, feed(func(f *runfile.Feed) { f.TokensPerBatch = 20; f.Filters = &runfile.Filters{MaxTokens: 7} }))
	for n := range int64(3) {
		k.group(n+1, 0, ending{reward: 1}, ending{prompt: 50})
	}
	if b := k.batch(); len(b.Groups) != 2 || b.Tokens != 14 {
		t.Errorf("batch %+v", b)
	}
}

// A batch must fit into the files of its ranks, however many groups it should have.
func TestDraftFitsIntoFiles(t *testing.T) {
	const most = storage.MaxArrowTokens
	for _, c := range []struct {
		name   string
		ranks  int
		tokens []int64
		groups int
	}{
		{"one file", 1, []int64{most / 2, most / 2, 1}, 2},
		{"two files", 2, []int64{most / 2, most / 2, most / 2, 1}, 2},
		{"within the files", 4, []int64{most / 8, most / 8, most / 8, most / 8}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := builder{feed: runfile.Feed{GroupsPerBatch: 4, Ranks: c.ranks}}
			for _, tokens := range c.tokens {
				if n.take(pending{}, tokens); n.full {
					break
				}
			}
			if !n.full || len(n.groups) != c.groups {
				t.Errorf("%s: %d groups, full %v, want %d", c.name, len(n.groups), n.full, c.groups)
			}
		})
	}
}

func TestGroupsThatNoFileHolds(t *testing.T) {
	d := NewDecider(testRun, runfile.DefaultRunConfig(), runfile.Feed{Name: "f"}, nil)
	g := pending{Members: []member{{Compared: true, outcome: outcome{Tokens: storage.MaxArrowTokens}},
		{Compared: true, outcome: outcome{Tokens: 1}}}}
	if dropped, ok := d.drop(g, state{}); !ok || dropped.Filter != "too_large" ||
		dropped.Reason != events.DropFiltered {
		t.Errorf("%+v", dropped)
	}
}
