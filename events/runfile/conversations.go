package runfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ConversationRule says what becomes of conversations that an agent or a harness has with the
// model: those that are all of what it names.
type ConversationRule struct {
	// Name is what turns, batches and figures call the rule.
	Name string `json:"name" yaml:"name"`
	// Model is the name by which the first request of the conversation asks for its model.
	Model string `json:"model,omitempty" yaml:"model" absent:"any model"`
	// System is a text that one of its system messages holds, letter by letter.
	System string `json:"system,omitempty" yaml:"system" absent:"any system prompt"`
	// Tree is which one of the rollout's conversations it is: TreeMain or TreeBeside.
	Tree string `json:"tree,omitempty" yaml:"tree" absent:"any of them"`
	// Train says whether the conversation is trained on.
	Train *bool `json:"train" yaml:"train"`
	// Endpoint answers the conversation in the place of the run's own servers, with Endpoint.Model,
	// which is another model than the run's policy. It is asked for chats, and never trained on.
	Endpoint *Endpoint `json:"endpoint,omitempty" yaml:"endpoint" absent:"the run's own servers and policy"`
}

// What ConversationRule.Tree may be.
const (
	// TreeMain is the first conversation that no rule without a tree masks,
	// and what goes on with it.
	TreeMain = "main"
	// TreeBeside is any other, as of a subagent or for a title.
	TreeBeside = "beside"
)

// Trees are both.
var Trees = []string{TreeMain, TreeBeside}

// Bounds of a run's rules.
const (
	MaxConversationRules = 32
	maxConversationText  = 1000 // bytes
)

// Masks reports whether what the rule takes is not trained on.
func (r *ConversationRule) Masks() bool { return r.Train != nil && !*r.Train }

// takes reports whether a rule takes a conversation that begins with a request for a model, behind
// some messages of the system.
func (r *ConversationRule) takes(model string, system []string, tree string) bool {
	return (r.Model == "" || r.Model == model) && (r.Tree == "" || r.Tree == tree) &&
		(r.System == "" || slices.ContainsFunc(system,
			func(text string) bool { return strings.Contains(text, r.System) }))
}

// ConversationRule is the first rule that takes a conversation, nil where none does.
func (c *RunConfig) ConversationRule(model string, system []string, tree string) *ConversationRule {
	i := slices.IndexFunc(c.Conversations, func(r ConversationRule) bool { return r.takes(model, system, tree) })
	if i < 0 {
		return nil
	}
	return &c.Conversations[i]
}

// Answering is the server that answers the conversations of a rule, nil where the run's own do.
func (c *RunConfig) Answering(rule string) *Endpoint {
	i := slices.IndexFunc(c.Conversations, func(r ConversationRule) bool { return r.Name == rule })
	if i < 0 {
		return nil
	}
	return c.Conversations[i].Endpoint
}

// AnsweredBy is the name of the model that answers the conversations of a rule,
// "" for the run's policy.
func (c *RunConfig) AnsweredBy(rule string) string {
	if e := c.Answering(rule); e != nil {
		return e.Model
	}
	return ""
}

// AskedOf is by which configuration a server of Answering is asked: the run's, without what it says
// of its policy. Of its sampling only the most tokens hold: all else is the client's to say.
func (c *RunConfig) AskedOf(server Endpoint) RunConfig {
	asked := *c
	asked.Policy, asked.PolicyVersion, asked.Feeds, asked.TokenColumns = "", nil, nil, nil
	asked.Endpoint, asked.Endpoints, asked.EndpointAPI = "", []Endpoint{server}, ""
	asked.Limits.Context = 0
	asked.Sampling = Sampling{Temperature: 1, MaxTokens: c.Sampling.MaxTokens, Seed: SeedNone}
	return asked
}

// checkAnswering says what is wrong with the server of a rule.
func (c *RunConfig) checkAnswering(r ConversationRule) error {
	e := r.Endpoint
	own := func(o Endpoint) bool {
		return strings.TrimRight(o.URL, "/") == strings.TrimRight(e.URL, "/") && o.Model == e.Model
	}
	switch {
	case e == nil:
		return nil
	case e.URL == BuiltinEndpoint:
		return fmt.Errorf("endpoint: url %q: it serves the run's policy; name another inference server, or leave endpoint out", e.URL)
	case strings.TrimSpace(e.Model) == "":
		return errors.New("endpoint: model: it has none; name the model that answers")
	case slices.ContainsFunc(c.Servers(), own):
		return fmt.Errorf("endpoint: it has no effect: %s answers with %q anyway; leave endpoint out",
			withoutSecrets(e.URL), e.Model)
	case !r.Masks() && r.Train != nil:
		return fmt.Errorf("train: true, but %q answers, which is not the policy that the run trains; say train: false",
			e.Model)
	}
	if err := e.Validate(); err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	return nil
}

// coveredBy names the rules before one that leave it no conversation to take, nil where it can take
// any. One that has nothing but what the rule asks for is taken by the fewest of the others.
func (c *RunConfig) coveredBy(rule int) (names []string) {
	r := c.Conversations[rule]
	for _, tree := range Trees {
		if r.Tree != "" && r.Tree != tree {
			continue
		}
		i := slices.IndexFunc(c.Conversations[:rule], func(o ConversationRule) bool {
			return o.takes(r.Model, []string{r.System}, tree)
		})
		if i < 0 {
			return nil
		}
		names = append(names, c.Conversations[i].Name)
	}
	return slices.Compact(names)
}

func (c *RunConfig) validateConversations() (errs []error) {
	rules := c.Conversations
	if len(rules) == 0 {
		return nil
	}
	if c.Agent == nil && !c.External {
		return []error{fmt.Errorf("conversations: Rondo's own loop has one conversation in each rollout; the rules are for a run with an agent, or an external one")}
	}
	if len(rules) > MaxConversationRules {
		return []error{fmt.Errorf("conversations: %d rules, at most %d", len(rules), MaxConversationRules)}
	}
	for i, r := range rules {
		check := func(ok bool, format string, args ...any) {
			if !ok {
				errs = append(errs, fmt.Errorf("conversations: %d (%.80q): "+format,
					append([]any{i, r.Name}, args...)...))
			}
		}
		same := func(o ConversationRule) bool { return o.Name == r.Name }
		check(ValidToken(r.Name) && !slices.ContainsFunc(rules[:i], same),
			"name: use one that no other rule has, of letters, digits, - and _, at most 64")
		check(len(r.Model) <= maxConversationText && len(r.System) <= maxConversationText,
			"model and system: at most %d bytes each", maxConversationText)
		check(r.System == "" || strings.TrimSpace(r.System) != "", "system: it is nothing but white space")
		check(r.Tree == "" || slices.Contains(Trees, r.Tree), "tree %.80q: must be one of %v", r.Tree, Trees)
		check(r.Train != nil, "train: say true or false")
		check(r.Model != "" || r.System != "" || r.Tree != "",
			"it takes every conversation; name a model, a system or a tree")
		err := c.checkAnswering(r)
		check(err == nil, "%v", err)
		covered := c.coveredBy(i)
		check(covered == nil, "it can never take a conversation: before it, %s takes all of them",
			strings.Join(covered, " and "))
		masked := slices.ContainsFunc(rules[i+1:], func(o ConversationRule) bool { return o.Masks() })
		check(r.Train == nil || r.Masks() ||
			masked, "it has no effect: conversations that no rule takes are trained on, and no rule after it masks any")
	}
	return errs
}
