package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/evaluation/behaviour"
)

// shownVersions bounds the rows of the behaviour table.
const shownVersions = 12

// runPage is what the page of a run shows. All of it is as of one sequence.
type runPage struct {
	Title, Here, Run string
	Past             bool
	Seq, Last        uint64 // as of, and of the log
	Behind           bool   // the log is still being folded
	Wrong            string // why it cannot be
	At               time.Time
	State, Reason    string
	Policy           string
	Version          int64
	Tasks            int
	Groups, Events   int64
	Continues        string
	Away             []string // what is wrong now with the plane and the run's inference servers
	Feeds            []feedBooks
	Endings          []counted
	Forfeits         []counted
	Behaviour        []behaviour.Line
	Versions         []string
	GroupRows        []groupRow
	GroupPager       pager
	Rollouts         []rolloutRow
	RolloutPager     pager
	Filter           filter
	Outcomes         []choice // to select
	Parts            []rewardPart
	MoreParts        int // the bound, if there are more
	// Addresses: of what is new, of the curves, of the file of the chosen rollouts, and of
	// the page without a filter.
	Live, Curves, Export, All string
}

type feedBooks struct {
	books.Balance
	Name    string
	Reasons []books.Row
	Tasks   []books.Row
	More    int // tasks that are not shown
}

type counted struct {
	Name string
	N    int
}

type choice struct {
	Name, Address string
	Here          bool
}

type groupRow struct {
	books.Group
	Rewards []rolloutRow
}

type rolloutRow struct {
	books.Rollout
	Outcome books.Outcome
	Reason  string
	Step    int64
	// FailedCalls are those of tools, on a run's page.
	FailedCalls int64
	Mark        mark
}

// run shows a run.
func (d *Dashboard) run(w http.ResponseWriter, r *http.Request) error {
	if strings.TrimSpace(r.URL.Query().Get("words")) != "" { // the page's filter has a field for them
		http.Redirect(w, r, strings.Replace(address(r, "page", "", "groups", ""), "?", "/search?", 1),
			http.StatusSeeOther)
		return nil
	}
	b, release, err := d.open(r)
	if err != nil {
		return err
	}
	defer release()
	p := &runPage{Title: "Run " + b.run, Here: "runs", Run: b.run, Past: b.until > 0}
	if in, err := d.log.Incarnation(r.Context(), b.run); err == nil {
		p.Last = in.LastSeq
	}
	b.mu.Lock()
	err = p.fill(r, b)
	servers := b.state.books.Config.Servers()
	for _, rule := range b.state.books.Config.Conversations {
		if rule.Endpoint != nil {
			servers = append(servers, *rule.Endpoint)
		}
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	if p.State == "open" && !p.Past {
		for _, o := range d.planeOutages() {
			if o.Concerns(b.run) {
				p.Away = append(p.Away, o.String())
			}
		}
		p.Away = append(p.Away, d.serversAway(servers)...)
	}
	return d.page(w, http.StatusOK, "run", p)
}

// Bounds of the rows of the books.
const (
	maxTasks   = 100
	maxReasons = 200
)

// fill reads the book, which is locked.
func (p *runPage) fill(r *http.Request, b *book[runState]) error {
	s, l := b.state, b.state.books
	p.Seq, p.At, p.State, p.Reason = b.last, b.at, l.State, clip(l.Reason, 1000)
	p.Last = max(p.Last, p.Seq)
	target := p.Last
	if p.Past {
		target = min(target, b.until)
	}
	p.Behind = !b.ended && p.Seq < target
	if b.wrong != nil {
		p.Wrong = clip(b.wrong.Error(), 1000)
	}
	p.Policy, p.Version, p.Tasks, p.Groups, p.Events = l.Config.Policy, l.PolicyVersion,
		len(l.Config.Tasks), l.Groups, l.Events
	if l.Continues != nil {
		p.Continues = l.Continues.Run
	}
	for _, side := range s.stands.feeds {
		f := feedBooks{Balance: side.Balance, Name: cmp.Or(side.Feed, "evaluation")}
		f.Reasons, _ = rowsOf(side.reasons, maxReasons)
		f.Tasks, f.More = rowsOf(side.tasks, maxTasks)
		p.Feeds = append(p.Feeds, f)
	}
	p.Endings, p.Forfeits = byCount(s.stands.endings), byCount(s.stands.forfeits)
	rows := s.behaviour(shownVersions)
	if len(rows) > 0 {
		p.Behaviour = behaviour.Lines(rows...)
	}
	for _, row := range rows {
		p.Versions = append(p.Versions, row.Versions())
	}
	if p.Parts = s.flows.rewardParts(); s.flows.more {
		p.MoreParts = maxParts
	}
	p.Live, p.Curves = r.URL.Path+"/live", r.URL.Path+"/curves"
	if p.Past {
		p.Live, p.Curves = p.Live+fmt.Sprintf("?at=%d", b.until), p.Curves+fmt.Sprintf("?at=%d", b.until)
		if !p.Behind {
			p.Live = ""
		}
	}
	return cmp.Or(p.groups(r, l), p.rollouts(r, s))
}

// groups fills a page of the groups, the newest first.
func (p *runPage) groups(r *http.Request, l *books.Run) (err error) {
	all := l.GroupCount()
	if p.GroupPager, err = paged(r, "groups", all, groupsPage); err != nil {
		return err
	}
	for _, g := range slices.Backward(l.GroupsOf(all-p.GroupPager.To, all-p.GroupPager.From)) {
		p.GroupRows = append(p.GroupRows, rowOf(l, g, maxMembers))
	}
	return nil
}

// maxMembers bounds the rollouts of a group that a table of groups shows.
const maxMembers = 32

func rowOf(l *books.Run, g books.Group, most int) groupRow {
	row := groupRow{Group: g}
	for _, id := range g.Members[:min(len(g.Members), most)] {
		if r, ok := l.Find(id); ok {
			row.Rewards = append(row.Rewards, entryOf(l, r))
		}
	}
	return row
}

func entryOf(l *books.Run, r books.Rollout) rolloutRow {
	feed := l.FirstFeed()
	e := l.Entry(feed, r.ID)
	return rolloutRow{Rollout: r, Outcome: e.Outcome, Reason: e.Reason, Step: l.TrainedAt(feed, r.ID)}
}

// outcomes can be selected; the names are those of the books.
var outcomes = []books.Outcome{books.InFlight, books.Trained, books.Stale, books.Filtered, books.Failed}

// rollouts fills a page of the rollouts, the newest first.
func (p *runPage) rollouts(r *http.Request, s *runState) (err error) {
	if p.Filter, err = filterOf(r.URL.Query()); err != nil {
		return err
	}
	rows, err := s.stands.chosen(p.Filter.Outcome, p.Filter.match(s), func(rows int) (from, to int, err error) {
		p.RolloutPager, err = paged(r, "page", rows, rolloutsPage)
		return p.RolloutPager.From, p.RolloutPager.To, err
	})
	if err != nil {
		return err
	}
	for _, rollout := range rows {
		row := entryOf(s.books, rollout)
		row.FailedCalls, row.Mark = s.failing[rollout.ID], s.marks[rollout.ID]
		p.Rollouts = append(p.Rollouts, row)
	}
	for _, o := range append([]books.Outcome{""}, outcomes...) {
		name := strings.ReplaceAll(cmp.Or(string(o), "all"), "_", " ")
		p.Outcomes = append(p.Outcomes, choice{name, address(r, "outcome", string(o), "page", ""),
			o == p.Filter.Outcome})
	}
	p.All = address(r, "task", "", "least", "", "most", "", "calls", "", "marked", "", "outcome", "", "page", "")
	_, chosen, _ := strings.Cut(address(r, "page", "", "groups", "", "words", "", "behind", ""), "?")
	p.Export = strings.TrimSuffix(r.URL.Path+"/rollouts.csv?"+chosen, "?")
	return nil
}

// address is that of the request with some parameters changed: names and values in turn, an
// empty value takes one away.
func address(r *http.Request, changes ...any) string {
	q := url.Values{}
	for _, name := range []string{"at", "outcome", "task", "least", "most", "calls", "marked", "words", "behind",
		"page", "groups", "against", "with", "remark"} {
		if v := r.URL.Query().Get(name); v != "" {
			q.Set(name, v)
		}
	}
	for pair := range slices.Chunk(changes, 2) {
		name, value := fmt.Sprint(pair[0]), fmt.Sprint(pair[1])
		if q.Set(name, value); value == "" {
			q.Del(name)
		}
	}
	if len(q) == 0 {
		return r.URL.Path
	}
	return r.URL.Path + "?" + q.Encode()
}

// group shows one group with its rollouts.
func (d *Dashboard) group(w http.ResponseWriter, r *http.Request) error {
	b, release, err := d.open(r)
	if err != nil {
		return err
	}
	defer release()
	b.mu.Lock()
	g, ok := b.state.books.FindGroup(r.PathValue("group"))
	row := rowOf(b.state.books, g, maxRows)
	past := b.until
	b.mu.Unlock()
	if !ok {
		return errNone
	}
	return d.page(w, http.StatusOK, "group", map[string]any{"Title": "Group " + g.ID, "Here": "runs", "Run": b.run,
		"Group": row, "Spread": spreadOf(row.Rewards), "At": past})
}

// maxRows bounds the rollouts of a group's own page.
const maxRows = 1024

// series is a curve for the page's charts.
type series struct {
	Name   string     `json:"name"`
	Values []*float64 `json:"values"`
}

// chart has curves over one axis.
type chart struct {
	X      []float64 `json:"x"`
	Series []series  `json:"series"`
	Time   bool      `json:"time,omitempty"`   // x is in seconds since 1970, else whole numbers
	Joined bool      `json:"joined,omitempty"` // curves are drawn through where they have no value
	Why    string    `json:"why,omitempty"`    // there are no points, if there are none
}

// because says why a chart without points has none.
func (c chart) because(why string) chart {
	if len(c.X) == 0 {
		c.Why = why
	}
	return c
}

// curves gives the charts of a run: reward and staleness by step, throughput and backlog over time.
func (d *Dashboard) curves(w http.ResponseWriter, r *http.Request) error {
	b, release, err := d.open(r)
	if err != nil {
		return err
	}
	defer release()
	b.mu.Lock()
	charts := b.state.charts()
	b.mu.Unlock()
	return d.json(w, charts)
}

// maxSteps bounds the points of a curve by step: where there are more, each stands for several.
const maxSteps = 500

// rewards are the mean rewards of the batches of the first feed, each with its step and with the
// tokens that the run had sampled by then.
type rewards struct {
	steps, sampled, staleness []float64
	means                     []*float64
}

func (s *runState) rewards() (r rewards) {
	batches := s.books.Batches(s.books.FirstFeed())
	each := max(1, (len(batches)+maxSteps-1)/maxSteps)
	for from := 0; from < len(batches); from += each {
		to := min(from+each, len(batches))
		var mean, old float64
		for _, batch := range batches[from:to] {
			mean += batch.RewardMean / float64(to-from)
			old = max(old, float64(batch.Staleness))
		}
		r.steps, r.sampled = append(r.steps, float64(batches[to-1].Step)), append(r.sampled, float64(s.spent[to-1]))
		r.means, r.staleness = append(r.means, &mean), append(r.staleness, old)
	}
	return r
}

func (s *runState) charts() map[string]chart {
	steps := s.rewards()
	staleness := series{Name: "staleness, versions"}
	for i := range steps.staleness {
		staleness.Values = append(staleness.Values, &steps.staleness[i])
	}
	noBatch := "There is no batch yet."
	if s.books.FirstFeed() == books.NoFeed {
		noBatch = "The run has no feed, so it has no steps."
	}
	charts := map[string]chart{
		"reward":    chart{X: steps.steps, Series: []series{{"mean reward", steps.means}}}.because(noBatch),
		"staleness": chart{X: steps.steps, Series: []series{staleness}}.because(noBatch),
	}
	charts["throughput"], charts["backlog"], charts["cost"] = s.flows.throughput(), s.flows.backlogs(), s.flows.cost()
	maps.Copy(charts, s.flows.rewards(s.books.Totals.Scored > 0))
	charts["work"], charts["tokens"], charts["shares"] = behaved(s.behaviour(drawnVersions))
	return charts
}

// drawnVersions bounds the points of a curve by policy version.
const drawnVersions = 60

// behaved are the curves of how agents behave. A point stands for the last version of its row;
// where the log does not say a figure there is a gap.
func behaved(rows []behaviour.Row) (work, tokens, shares chart) {
	mean := func(f *behaviour.Figure) *float64 {
		if f == nil {
			return nil
		}
		return &f.Mean
	}
	percent := func(share *float64) *float64 {
		if share == nil {
			return nil
		}
		return new(100 * *share)
	}
	work.Series, tokens.Series = []series{{Name: "turns"}, {Name: "calls in a turn with any"}},
		[]series{{Name: "sampled tokens"}}
	shares.Series = []series{{Name: "turns with reasoning"}, {Name: "parallel calls"}, {Name: "failed calls"}}
	for _, r := range rows {
		if r.Scored == 0 {
			continue
		}
		for c, values := range map[*chart][]*float64{
			&work: {mean(r.Turns), r.CallsPerTurn}, &tokens: {mean(r.SampledTokens)},
			&shares: {percent(r.ReasoningTurnShare), percent(r.ParallelTurnShare), percent(r.FailedCallShare)},
		} {
			c.X = append(c.X, float64(r.LastVersion))
			for i, v := range values {
				c.Series[i].Values = append(c.Series[i].Values, v)
			}
		}
	}
	const none = "No rollout is scored yet."
	return work.because(none), tokens.because(none), shares.because(none)
}

// cost is in sampled tokens per minute.
func (f *flows) cost() chart {
	c := chart{X: f.axis(), Time: true, Series: []series{{Name: "sampled tokens per minute"}}}
	for _, p := range f.points {
		c.Series[0].Values = append(c.Series[0].Values, new(float64(p.Sampled)/f.width.Minutes()))
	}
	return c
}

// rewards are the parts of the rewards of what was scored, each a chart of its own: they have their
// own units. Without any, noParts says why.
func (f *flows) rewards(scored bool) map[string]chart {
	why := "No rollout is scored yet."
	switch {
	case len(f.parts) > 0:
		why = "The reward has parts by now: load the page again."
	case scored:
		why = "The rewards have no parts: verifiers and the scorer report one number."
	}
	charts := map[string]chart{noParts: {Why: why}}
	for i, name := range f.parts {
		c := chart{Time: true, Joined: true, Series: []series{{Name: line(name)}}}
		for k, x := range f.axis() {
			parts := f.points[k].Parts
			if i >= len(parts) || parts[i].N == 0 || math.IsInf(parts[i].Mean, 0) || math.IsNaN(parts[i].Mean) {
				continue
			}
			// a copy: the fold goes on while the chart is written
			c.X, c.Series[0].Values = append(c.X, x), append(c.Series[0].Values, new(parts[i].Mean))
		}
		charts[partChart(i)] = c.because("Its values are too large to have a mean.")
	}
	return charts
}

// noParts is the chart of a run whose rewards have no parts, and partChart that of one of them.
const noParts = "part"

func partChart(i int) string { return fmt.Sprint(noParts, i) }

// rewardPart is a part of the reward and its chart.
type rewardPart struct{ Name, Chart string }

func (f *flows) rewardParts() (parts []rewardPart) {
	for i, name := range f.parts {
		parts = append(parts, rewardPart{name, partChart(i)})
	}
	slices.SortFunc(parts, func(a, b rewardPart) int { return cmp.Compare(a.Name, b.Name) })
	return parts
}

func (f *flows) axis() (x []float64) {
	for i := range f.points {
		x = append(x, float64(f.began.Add(time.Duration(i)*f.width).UnixMilli())/1000)
	}
	return x
}

// throughput is in rollouts per minute.
func (f *flows) throughput() chart {
	c := chart{X: f.axis(), Time: true, Series: []series{{Name: "scored per minute"}, {Name: "failed per minute"}}}
	for _, p := range f.points {
		for i, n := range []int{p.Scored, p.Failed} {
			v := float64(n) / f.width.Minutes()
			c.Series[i].Values = append(c.Series[i].Values, &v)
		}
	}
	return c
}

// backlogs is how many rollouts each stage has.
func (f *flows) backlogs() chart {
	c := chart{X: f.axis(), Time: true}
	for i, name := range []string{"at the model", "at tools", "at the verifier",
		"wait for their group", "wait for a batch"} {
		c.Series = append(c.Series, series{Name: name})
		for _, p := range f.points {
			v := float64(p.Backlog[i])
			c.Series[i].Values = append(c.Series[i].Values, &v)
		}
	}
	return c
}
