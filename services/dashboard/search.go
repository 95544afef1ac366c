package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/export"
	"github.com/rondo-rl/rondo/export/episode"
	"github.com/rondo-rl/rondo/storage"
)

// Bounds of one search through conversations. What is behind them is looked at by the next one,
// which goes on from there.
const (
	searchTime     = 3 * time.Second
	searchBytes    = 128 << 20 // of trajectory files
	searchRollouts = 1000
	searchFinds    = 50
	longestWords   = 200 // bytes
	shownUnread    = 5
)

// searchPage is what the page of a search shows.
type searchPage struct {
	Title, Here, Run, Words string
	At                      int64 // sequence, 0: now
	Filter                  filter
	Finds                   []find
	// Looked counts the rollouts that were looked at, of the Chosen ones that are not newer than
	// where the search began. Unread are some of those that could not be, with the reason, and
	// MoreUnread counts the others.
	Looked, Chosen int
	Unread         []string
	MoreUnread     int
	// Stopped says why the search ended before the last rollout. Next goes on with the others, and
	// Back is the page of the run with the same filter.
	Stopped, Next, Back string
}

// Rest counts the rollouts that were not looked at.
func (p *searchPage) Rest() int { return p.Chosen - p.Looked }

// AllUnread counts the rollouts that could not be read.
func (p *searchPage) AllUnread() int { return len(p.Unread) + p.MoreUnread }

// find is the first place in a rollout's conversation that has the words.
type find struct {
	books.Rollout
	Address, Role         string
	Before, Match, Behind string
	Places                int // messages that have them
}

// search looks for words in the conversations of the rollouts that a filter
// chooses, the newest first.
func (d *Dashboard) search(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	p := &searchPage{Title: "Search", Here: "runs", Run: r.PathValue("run"),
		Words: strings.Join(strings.Fields(q.Get("words")), " ")}
	var err error
	if p.Filter, err = filterOf(q); err != nil {
		return err
	}
	if p.At, err = whole(r, "at", 0); err != nil {
		return err
	}
	if n := len(p.Words); n == 0 || n > longestWords {
		return &refusal{http.StatusBadRequest, fmt.Sprintf("Give words to look for, at most %d bytes.", longestWords)}
	}
	if _, err := d.log.Incarnation(r.Context(), p.Run); errors.Is(err, eventlog.ErrNotFound) {
		return &refusal{http.StatusNotFound,
			"Nothing was looked at: only the archive of the run is left, which is not searched here. `rondo trajectories export` writes its conversations into files."}
	}
	b, release, err := d.folded(r)
	if err != nil {
		return err
	}
	defer release()
	b.mu.Lock()
	rollouts, chosen, known := b.state.stands.older(q.Get("behind"), p.Filter.Outcome,
		p.Filter.match(b.state), searchRollouts)
	config := b.state.books.Config
	b.mu.Unlock()
	if !known {
		return &refusal{http.StatusBadRequest, "The run has no rollout of that name to look behind."}
	}
	p.Chosen = chosen
	ctx, cancel := context.WithTimeout(r.Context(), d.searchTime)
	defer cancel()
	last := d.look(ctx, p, rollouts, &episode.Knowledge{Config: config})
	if err := r.Context().Err(); err != nil {
		return err
	}
	if p.Looked < p.Chosen && last != "" {
		p.Next = address(r, "behind", last)
	}
	p.Back = strings.TrimSuffix(strings.Replace(address(r, "behind", "", "words", ""), "/search", "", 1), "?")
	return d.page(w, http.StatusOK, "search", p)
}

// look reads rollouts until a bound is reached, and answers the last one.
func (d *Dashboard) look(ctx context.Context, p *searchPage, rollouts []books.Rollout,
	known *episode.Knowledge) (last string) {
	left := int64(searchBytes)
	for _, r := range rollouts {
		if len(p.Finds) == searchFinds {
			p.Stopped = fmt.Sprintf("%d finds are shown", searchFinds)
			return last
		}
		t, read, err := d.conversation(ctx, p.Run, r, episode.Bounds{Bytes: max(1, min(maxTrajectory, left)),
			Seq: uint64(p.At), Known: known})
		switch {
		case errors.Is(err, episode.ErrTooLarge) && left < maxTrajectory:
			p.Stopped = fmt.Sprintf("%s were read", size(searchBytes))
			return last
		case ctx.Err() != nil:
			p.Stopped = fmt.Sprintf("a search ends after %v", d.searchTime)
			if p.Looked > 0 {
				return last
			}
			err = errors.New("it takes too long to read") // the next search goes on behind it
		}
		last, p.Looked = r.ID, p.Looked+1
		switch {
		case err == nil:
		case len(p.Unread) < shownUnread:
			p.Unread = append(p.Unread, r.ID+": "+clip(err.Error(), 200))
			continue
		default:
			p.MoreUnread++
			continue
		}
		left -= read
		if found := findIn(t, p.Words); found.Places > 0 {
			found.Rollout, found.Address = r, fmt.Sprintf("/runs/%s/rollouts/%s?%s", p.Run, r.ID, found.Address)
			if p.At > 0 {
				found.Address = strings.Replace(found.Address, "?", fmt.Sprintf("?at=%d&", p.At), 1)
			}
			p.Finds = append(p.Finds, found)
		}
	}
	if p.Looked < p.Chosen && p.Stopped == "" {
		p.Stopped = fmt.Sprintf("a search ends after %d rollouts", searchRollouts)
	}
	return last
}

// conversation reads what was said in a rollout, one of few at once, as pages do. Of one that has
// finished, a single fact names the file; what is in flight is made of its chain.
func (d *Dashboard) conversation(ctx context.Context, run string, r books.Rollout,
	most episode.Bounds) (*storage.Trajectory, int64, error) {
	select {
	case d.reads <- struct{}{}:
		defer func() { <-d.reads }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	var file storage.Ref
	switch {
	case r.Scored:
		scored, err := stated[events.RolloutScored](ctx, d.log, run, events.RolloutScoredType, r.ID)
		if err != nil {
			return nil, 0, err
		}
		file = scored.Trajectory
	case r.Finished:
		finished, err := stated[events.RolloutFinished](ctx, d.log, run, events.RolloutFinishedType, r.ID)
		if err != nil {
			return nil, 0, err
		}
		file = finished.Trajectory
	default:
		e, err := episode.Read(ctx, d.log, run, r.ID, most)
		if err != nil {
			return nil, 0, err
		}
		return e.Trajectory, 0, nil
	}
	if file.Size > most.Bytes {
		return nil, 0, fmt.Errorf("%d bytes: %w", file.Size, episode.ErrTooLarge)
	}
	data, err := storage.GetBlob(ctx, d.log.Store(), file)
	if err != nil {
		return nil, 0, err
	}
	t, err := storage.DecodeTrajectory(data)
	return t, file.Size, err
}

// stated is the fact of a type that a rollout has one of.
func stated[T any](ctx context.Context, log eventlog.Reader, run string, typ events.Type, rollout string) (T, error) {
	e, err := log.LastOfType(ctx, run, typ, rollout)
	if err != nil {
		var none T
		return none, err
	}
	return events.Data[T](e)
}

// findIn looks for words, whatever their case, in each message by itself: in what was said and
// thought, and in the calls.
func findIn(t *storage.Trajectory, words string) (f find) {
	words = strings.ToLower(words)
	escaped, _ := json.Marshal(words) // as the arguments of calls have them
	needles := []string{words, string(escaped[1 : len(escaped)-1])}
	for i, m := range t.Messages {
		text, at, length := spot(textsOf(m), needles)
		if at < 0 || m.Role == "prompt" { // tokens alone
			continue
		}
		if f.Places++; f.Places > 1 {
			continue
		}
		items := itemsOf(t)
		item := slices.IndexFunc(items, func(r reach) bool { return i < r.to })
		f.Address = fmt.Sprintf("page=%d#m%d", max(0, item)/turnsPage+1, items[max(0, item)].from)
		f.Role = line(m.Role + " " + m.Name)
		from := max(0, at-80)
		f.Before, _ = cut(text, from, at-from)
		f.Match, _ = cut(text, at, length)
		f.Behind, _ = cut(text, at+length, 160)
	}
	return f
}

// textsOf are the texts of a message.
func textsOf(m storage.Message) []string {
	texts := []string{m.Content, m.Reasoning}
	for _, call := range export.Calls(m) {
		texts = append(texts, call.Name+" "+call.Arguments)
	}
	return texts
}

// spot is where the first of some texts has one of the needles, which are in lower case; at is -1
// where none has. Blanks count as they are.
func spot(texts, needles []string) (text string, at, length int) {
	for _, text := range texts {
		lower := strings.ToLower(text)
		for _, needle := range needles {
			at := strings.Index(lower, needle)
			if at < 0 {
				continue
			}
			if len(lower) != len(text) {
				text = lower // places in it are others
			}
			return text, at, len(needle)
		}
	}
	return "", -1, 0
}
