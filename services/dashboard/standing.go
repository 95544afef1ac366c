package dashboard

import (
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
)

// standing counts where the rollouts of a run are. The books can say it of each rollout at any
// time; asked for all of them they take time that grows with the run, and a page must not. So an
// event moves the rollouts that it is about from one count to another, and no page counts anything.
type standing struct {
	books    *books.Run
	place    map[string]int // rollouts → their place in the order of starts
	seen     []rolloutCount // by place
	feeds    []*side
	endings  map[string]int // by stop reason
	forfeits map[string]int
}

// rolloutCount is what was counted of a rollout, whatever the feed.
type rolloutCount struct {
	ending, forfeit string
	invalidated     bool
}

// side is one feed's side of the books.
type side struct {
	books.Balance
	entries        []books.Entry // by place
	reasons, tasks []*books.Row  // by key
}

func newStanding(books *books.Run) *standing {
	return &standing{books: books, place: map[string]int{}, endings: map[string]int{}, forfeits: map[string]int{}}
}

// consumption is what an event is about to change in the books that they do not tell afterwards.
func (s *standing) consumption(e events.Event) (consumed int64) {
	if e.Type.Kind() != events.BatchReadyType.Kind() {
		return 0
	}
	return s.books.Consumed(e.Entity)
}

// count moves what an event is about, which the books have folded. consumed is what before gave.
func (s *standing) count(e events.Event, consumed int64) error {
	switch e.Type {
	case events.RunOpenedType:
		s.list()
	case events.GroupCompletedType:
		g, _ := s.books.FindGroup(e.Entity)
		s.recount(s.feeds, g.Members)
	case events.GroupDroppedType:
		dropped, err := events.Data[events.GroupDropped](e)
		if err != nil {
			return err
		}
		g, _ := s.books.FindGroup(e.Entity)
		s.recount(s.feedsOf(dropped.Feed), g.Members)
	case events.BatchReadyType:
		batches := s.books.Batches(e.Entity)
		s.batched(e.Entity, batches[len(batches)-1])
	case events.BatchConsumedType, events.BatchRewoundType:
		now := s.books.Consumed(e.Entity)
		for _, ready := range slices.Backward(s.books.Batches(e.Entity)) {
			if ready.Step > min(consumed, now) && ready.Step <= max(consumed, now) {
				s.batched(e.Entity, ready)
			}
		}
		s.feedsOf(e.Entity)
	default:
		if e.Type.Kind() == events.RolloutStartedType.Kind() {
			s.rollout(e.Entity)
		}
	}
	return nil
}

// batched moves the rollouts of a batch.
func (s *standing) batched(feed string, ready books.Batch) {
	for _, id := range ready.Groups {
		g, _ := s.books.FindGroup(id)
		s.recount(s.feedsOf(feed), g.Members)
	}
	for _, side := range s.feedsOf(feed) {
		side.Steps, side.Consumed = len(s.books.Batches(feed)), s.books.Consumed(feed)
	}
}

// rollout counts what happened to one rollout.
func (s *standing) rollout(id string) {
	r, ok := s.books.Find(id)
	if !ok {
		return
	}
	at, known := s.place[id]
	if !known {
		at = len(s.seen)
		s.place[id], s.seen = at, append(s.seen, rolloutCount{})
		for _, f := range s.feeds {
			f.start(s.books.Entry(f.Feed, id), r.Task)
		}
	}
	was := &s.seen[at]
	replace(s.endings, was.ending, r.StopReason)
	replace(s.forfeits, was.forfeit, r.Forfeit)
	if r.Invalidated && !was.invalidated {
		for _, f := range s.feeds {
			f.Invalidated++
		}
	}
	*was = rolloutCount{r.StopReason, r.Forfeit, r.Invalidated}
	s.recount(s.feeds, []string{id})
}

func replace(counts map[string]int, was, now string) {
	if was == now {
		return
	}
	if counts[was]--; counts[was] <= 0 {
		delete(counts, was)
	}
	if now != "" {
		counts[now]++
	}
}

// recount looks where rollouts are now on some sides.
func (s *standing) recount(feeds []*side, rollouts []string) {
	for _, id := range rollouts {
		at, ok := s.place[id]
		if !ok {
			continue
		}
		for _, f := range feeds {
			r, _ := s.books.Find(id)
			f.move(at, s.books.Entry(f.Feed, id), r.Task)
		}
	}
}

// feedsOf is the side of a feed, which begins when the log first speaks of the feed.
func (s *standing) feedsOf(feed string) []*side {
	for range 2 {
		if i := slices.IndexFunc(s.feeds, func(f *side) bool { return f.Feed == feed }); i >= 0 {
			return s.feeds[i : i+1]
		}
		s.list()
	}
	return nil
}

// list takes up the feeds of the run, and counts all rollouts on a side that is new: that is seldom
// more than at the opening.
func (s *standing) list() {
	old := s.feeds
	s.feeds = nil
	for _, feed := range s.books.Feeds() {
		if i := slices.IndexFunc(old, func(f *side) bool { return f.Feed == feed }); i >= 0 {
			s.feeds = append(s.feeds, old[i])
			continue
		}
		f := &side{Balance: books.Balance{Feed: feed, Steps: len(s.books.Batches(feed)),
			Consumed: s.books.Consumed(feed)}}
		for r := range s.books.All() {
			f.start(s.books.Entry(feed, r.ID), r.Task)
			if r.Invalidated {
				f.Invalidated++
			}
		}
		s.feeds = append(s.feeds, f)
	}
}

// start counts the next rollout.
func (f *side) start(e books.Entry, task string) {
	f.entries = append(f.entries, e)
	f.add(e, task, 1)
}

func (f *side) move(at int, now books.Entry, task string) {
	if was := f.entries[at]; was != now {
		f.add(was, task, -1)
		f.add(now, task, 1)
		f.entries[at] = now
	}
}

func (f *side) add(e books.Entry, task string, n int) {
	f.Add(e.Outcome, n)
	f.reasons = addTo(f.reasons, e.Key(books.ByReason, task), e.Outcome, n)
	f.tasks = addTo(f.tasks, e.Key(books.ByTask, task), e.Outcome, n)
}

// addTo counts on the row of a key. A row that has no rollout any more is taken out.
func addTo(rows []*books.Row, key string, o books.Outcome, n int) []*books.Row {
	i, found := slices.BinarySearchFunc(rows, key, func(r *books.Row,
		key string) int {
		return strings.Compare(r.Key, key)
	})
	if !found {
		rows = slices.Insert(rows, i, &books.Row{Key: key})
	}
	rows[i].Add(o, n)
	if rows[i].Started == 0 {
		return slices.Delete(rows, i, i+1)
	}
	return rows
}

// rowsOf copies the first rows of a division, and says how many there are more.
func rowsOf(rows []*books.Row, most int) (list []books.Row, more int) {
	for _, r := range rows[:min(len(rows), most)] {
		list = append(list, *r)
	}
	return list, max(0, len(rows)-most)
}

// byCount lists names, the most frequent first.
func byCount(counts map[string]int) (list []counted) {
	for _, name := range books.ByCount(counts) {
		list = append(list, counted{name, counts[name]})
	}
	return list
}

// chosen lists a page of the rollouts that have an outcome on the first side, the newest first; ""
// is any. from and to give the rows of the page when they are told how many there are. A match that
// is asked of each rollout takes time that grows with the run, and nil is none.
func (s *standing) chosen(outcome books.Outcome, match func(books.Rollout) bool,
	page func(rows int) (from, to int, err error)) (rollouts []books.Rollout, err error) {
	if outcome != "" && len(s.feeds) == 0 {
		match = func(books.Rollout) bool { return false }
	}
	rows := len(s.seen)
	switch {
	case match != nil:
		rows = 0
		for at := range s.seen {
			if s.ended(at, outcome) && match(s.books.RolloutAt(at)) {
				rows++
			}
		}
	case outcome != "":
		rows = *s.feeds[0].Counter(outcome)
	}
	from, to, err := page(rows)
	if err != nil {
		return nil, err
	}
	row := 0
	for at := len(s.seen) - 1; at >= 0 && row < to; at-- {
		if !s.ended(at, outcome) || match != nil && !match(s.books.RolloutAt(at)) {
			continue
		}
		if row >= from {
			rollouts = append(rollouts, s.books.RolloutAt(at))
		}
		row++
	}
	return rollouts, nil
}

// older lists the rollouts that are chosen and older than one, the newest first, and counts them
// all; "" is older than none. known is false where there is no such rollout.
func (s *standing) older(than string, outcome books.Outcome, match func(books.Rollout) bool,
	most int) (rollouts []books.Rollout, all int, known bool) {
	known = than == ""
	for at := len(s.seen) - 1; at >= 0; at-- {
		r := s.books.RolloutAt(at)
		if !known {
			known = r.ID == than
			continue
		}
		if !s.ended(at, outcome) || match != nil && !match(r) {
			continue
		}
		if all++; len(rollouts) < most {
			rollouts = append(rollouts, r)
		}
	}
	return rollouts, all, known
}

// ended reports whether the rollout at a place has an outcome on the first side; "" is any.
func (s *standing) ended(at int, outcome books.Outcome) bool {
	return outcome == "" || len(s.feeds) > 0 && s.feeds[0].entries[at].Outcome == outcome
}
