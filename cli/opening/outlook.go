package opening

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
)

// outlookTimeout is how long a server may take to say which models it has.
const outlookTimeout = 10 * time.Second

// Outlook is what a run would meet at its inference servers, as far as this machine sees
// it: a sentence for each, with the remedy. A server that answers without a list of
// models has nothing to say.
type Outlook struct {
	Silent []string // those that do not answer, or refuse the key
	Others []string // those that serve other models
	Narrow []string // those whose context is smaller than limits.tokens
}

// Look asks the run's inference servers which models they have.
func (f *RunFile) Look(ctx context.Context, keys fleet.Keys) (o Outlook) {
	if f.External {
		return o
	}
	ctx, cancel := context.WithTimeout(ctx, outlookTimeout)
	defer cancel()
	direct := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	servers := f.Servers()
	own := len(servers)
	for _, rule := range f.Conversations {
		if rule.Endpoint != nil {
			servers = append(servers, *rule.Endpoint)
		}
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for i, server := range servers {
		if server.URL == runfile.BuiltinEndpoint || server.Validate() != nil { // the intake says what is wrong
			continue
		}
		asked.Go(func() {
			client := &inference.Client{HTTP: direct, APIKey: keys.Key("", server.URL)}
			models, err := client.Models(ctx, server.URL)
			mu.Lock()
			defer mu.Unlock()
			o.add(server, models, err, i < own, f.Limits.Tokens)
		})
	}
	asked.Wait()
	for _, list := range [][]string{o.Silent, o.Others, o.Narrow} {
		slices.Sort(list)
	}
	return o
}

// add notes what one server has answered: one of the run's policy, or else of
// a rule of conversations.
func (o *Outlook) add(server runfile.Endpoint, models []inference.Model, err error, policy bool, tokens int) {
	address, model := "endpoint", "policy, or the endpoint's model,"
	if !policy {
		address, model = "endpoint.url of the rule in conversations", "endpoint.model of the rule in conversations"
	}
	var failure *inference.Failure
	refused := errors.As(err, &failure) &&
		(failure.Status == http.StatusUnauthorized || failure.Status == http.StatusForbidden)
	switch {
	case refused:
		o.Silent = append(o.Silent, server.URL+" refuses the key: give it one with --endpoint-keys")
	case err != nil && failure != nil && failure.Status != 0: // it answers, and lists no models
	case err != nil:
		o.Silent = append(o.Silent,
			fmt.Sprintf("%s gives no list of its models (%v): start it, or correct %s in the run file", server.URL, err,
				address))
	case len(models) > 0 && !slices.ContainsFunc(models,
		func(m inference.Model) bool { return serves(m.ID, server.Model) }):
		o.Others = append(o.Others, fmt.Sprintf("%s does not serve the model %q but %q: correct %s in the run file",
			server.URL, server.Model, models[0].ID, model))
	}
	for _, m := range models {
		if room := cmp.Or(m.Context, m.Trained); m.ID == server.Model && policy && room > 0 && room < tokens {
			o.Narrow = append(o.Narrow, fmt.Sprintf("%s has a context of %d tokens, and limits.tokens is %d: "+
				"a rollout that fills it ends with the stop reason context, and is scored as it stands",
				server.URL, room, tokens))
		}
	}
}

// serves reports whether a server that lists a model takes requests for another name: versions of
// an adapter are listed as NAME@VERSION, and SGLang's are asked for as BASE:ADAPTER.
func serves(listed, asked string) bool {
	for _, name := range append(strings.Split(asked, ":"), asked) {
		if listed == name || strings.HasPrefix(listed, name+"@") {
			return true
		}
	}
	return false
}
