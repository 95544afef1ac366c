package runfile

import (
	"strings"
	"testing"
)

// rules are those of a table: name, model, system, tree, and whether it trains.
func rules(lines ...string) (rules []ConversationRule) {
	for _, line := range lines {
		f := strings.Split(line, "|")
		rules = append(rules, ConversationRule{Name: f[0], Model: f[1], System: f[2], Tree: f[3],
			Train: new(f[4] == "train")})
	}
	return rules
}

// TestConversationRules: the first rule of which a conversation has all decides.
func TestConversationRules(t *testing.T) {
	c := withAgent()
	c.Conversations = rules("title||a short title||mask", "sage|opus||beside|train",
		"small|haiku|||mask", "other|||beside|mask")
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]struct {
		model, system, tree, want string
	}{
		"by the system prompt":           {"p", "You write a short title.", TreeMain, "title"},
		"its letters count":              {"p", "You write A short title.", TreeMain, ""},
		"the first rule decides":         {"haiku", "a short title", TreeBeside, "title"},
		"by the model":                   {"haiku", "You mend.", TreeMain, "small"},
		"the model's whole name counts":  {"haiku-4", "You mend.", TreeMain, ""},
		"all of a rule must be so":       {"opus", "You mend.", TreeMain, ""},
		"by model and tree":              {"opus", "You read.", TreeBeside, "sage"},
		"by the tree":                    {"p", "", TreeBeside, "other"},
		"no rule takes the main one":     {"p", "You mend.", TreeMain, ""},
		"no model, and no system prompt": {"", "", TreeMain, ""},
	} {
		got := ""
		if rule := c.ConversationRule(at.model, []string{"Be brief.", at.system}, at.tree); rule != nil {
			got = rule.Name
		}
		if got != at.want {
			t.Errorf("%s: taken by %q, want %q", name, got, at.want)
		}
	}
	if r := c.ConversationRule("p", []string{"a short", " title"}, TreeMain); r != nil {
		t.Errorf("a text in two messages is taken by %s", r.Name)
	}
}

// TestBadConversationRules: a table that does not say what its writer means is refused.
func TestBadConversationRules(t *testing.T) {
	for want, lines := range map[string][]string{
		"0 (\"a b\"): name: use one that no other":    {"a b||x||mask"},
		"1 (\"a\"): name: use one that no other":      {"a||x||mask", "a||y||mask"},
		"tree \"left\": must be one of [main beside]": {"a|||left|mask"},
		"it takes every conversation; name a model":   {"a||||mask"},
		"it is nothing but white space":               {"a|| \t||mask"},
		"model and system: at most 1000 bytes": {"a||" +
			strings.Repeat("x", 1001) + "||mask"},
		"0 (\"a\"): it has no effect": {"a||x||train"},
		"1 (\"b\"): it has no effect": {"a||x||mask", "b|||beside|train"},
		"1 (\"b\"): it can never take a conversation: before it, a takes": {"a||title||mask",
			"b|m|a title|main|mask"},
		"1 (\"b\"): it can never take a conversation: before it, a takes all": {"a|m|||mask", "b|m||beside|mask"},
		"2 (\"c\"): it can never take a conversation: before it, a and b takes": {"a|||main|mask", "b|||beside|mask",
			"c|m|||mask"},
		"33 rules, at most 32": strings.Split(
			strings.Repeat("a||x||mask,", 33), ",")[:33],
	} {
		c := withAgent()
		c.Conversations = rules(lines...)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", lines, err, want)
		}
	}
	for _, lines := range [][]string{
		{"a|m|||mask", "b|n|||mask"},
		{"a||a title||mask", "b||title||mask"},
		{"a|||main|mask", "b|m|||mask"},
		{"a|m||main|mask", "b|m||beside|mask"},
		{"a|m|||train", "b|||beside|mask"},
		{"a|m|x||mask", "b|m|||mask", "c||x||mask"},
	} {
		c := withAgent()
		c.Conversations = rules(lines...)
		if err := c.Validate(); err != nil {
			t.Errorf("%v: %v", lines, err)
		}
	}
	for want, e := range map[string]Endpoint{
		"": {URL: "https://api.example.com/v1", Model: "small", Slots: 4},
		"endpoint: url \"10.0.0.7\": give the base URL":             {URL: "10.0.0.7", Model: "small"},
		"endpoint: url \"…@b/v1\": give the base URL":               {URL: "http://user:secret@b/v1", Model: "small"},
		"endpoint: url \"builtin\": it serves the run's policy":     {URL: BuiltinEndpoint, Model: "small"},
		"endpoint: model: it has none; name the model that answers": {URL: "http://b/v1"},
		"endpoint: model: use at most 256 bytes":                    {URL: "http://b/v1", Model: "a\nb"},
		"endpoint: slots -1":                                        {URL: "http://b/v1", Model: "small", Slots: -1},
		"endpoint: it has no effect: http://a/v1/ answers with":     {URL: "http://a/v1/", Model: "p"},
	} {
		c := withAgent()
		c.Policy, c.Endpoint, c.Conversations = "p", "http://a/v1", rules("a|m|||mask")
		c.Conversations[0].Endpoint = &e
		if err := c.Validate(); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", e, err, want)
		}
	}
	c := withAgent()
	c.Conversations = rules("a|m|||train", "b|||beside|mask")
	c.Conversations[0].Endpoint = &Endpoint{URL: "http://b/v1", Model: "small"}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), `train: true, but "small" answers`) {
		t.Errorf("a rule that trains on another model: %v", err)
	}
	c = withAgent()
	c.Conversations = []ConversationRule{{Name: "a", Model: "m"}}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "train: say true or false") {
		t.Errorf("a rule that says nothing: %v", err)
	}
	c.Agent, c.Conversations = nil, rules("a|m|||mask")
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "conversations: Rondo's own loop has one") {
		t.Errorf("a run with Rondo's own loop: %v", err)
	}
}
