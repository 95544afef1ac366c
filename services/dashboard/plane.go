package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

const lettersPage = 25

// plane shows what outlives runs: weights and the servers that have them,
// indexes, and dead letters.
func (d *Dashboard) plane(w http.ResponseWriter, r *http.Request) error {
	at, err := whole(r, "at", 0)
	if err != nil {
		return err
	}
	b, last, release, err := d.openCatalogue(r, uint64(at))
	if err != nil {
		return err
	}
	defer release()
	b.mu.Lock()
	c := b.state
	pager, err := paged(r, "page", len(c.letters), lettersPage)
	letters := slices.Clone(c.letters)
	slices.Reverse(letters)
	var policies []served
	for _, name := range c.names {
		p := *c.policies[name]
		p.Versions, p.Replicas = slices.Clone(p.Versions), slices.Clone(p.Replicas)
		slices.Reverse(p.Versions)
		p.Versions = p.Versions[:min(len(p.Versions), shownPublished)]
		slices.SortFunc(p.Replicas, func(a, b replica) int { return strings.Compare(a.Name, b.Name) })
		policies = append(policies, p)
	}
	slices.SortFunc(policies, func(a, b served) int { return strings.Compare(a.Name, b.Name) })
	policies = policies[:min(len(policies), maxPolicies)]
	repos, lettered, seq, clock := slices.Clone(c.repos), c.lettered, b.last, b.at
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return d.page(w, http.StatusOK, "plane", map[string]any{"Title": "Plane", "Here": "plane", "Policies": policies,
		"Repos": repos, "Letters": letters[pager.From:pager.To],
		"Lettered": lettered, "Pager": pager, "Past": at > 0, "Behind": seq < min(last, cmp.Or(uint64(at), last)),
		"Seq": seq, "Last": max(last, seq), "At": clock,
		"Redriven": r.URL.Query().Get("redriven") != ""})
}

const (
	shownPublished = 10 // versions of a policy
	maxPolicies    = 100
)
