package runfile

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// alike are the keys of a run file whose empty value means the same as leaving them out, and says
// so: nothing of the kind, no bound, or what the server says.
var alike = strings.Fields(`conversations endpoints seed steps epochs external teachers trackers scorer.effort.turns scorer.effort.tokens scorer.effort.tool_seconds scorer.function
	features repositories limits.context limits.tell_room limits.logprob_gap limits.budget_tokens limits.tokens_per_minute log.replicas tools.rename tools.add tools.servers
	tools.add.parameters tools.add.read_only tools.servers.tools.parameters tools.servers.tools.read_only tools.servers.tools.description environment.tools.parameters
	environment.tools environment.roles environment.tools.read_only environment.tools.description
	network.allow feeds.tokens_per_batch feeds.teachers feeds.hints feeds.filters.zero_variance feeds.filters.max_tokens feeds.filters.truncated
	feeds.filters.train_constrained feeds.filters.whole_episodes feeds.staleness.require_versions feeds.staleness.max staleness.require_versions advantage.params advantage.span_weight
	advantage.shuffle_rewards shaping.length_penalty.output shaping.length_penalty.input shaping.length_penalty.turns
	filters.zero_variance filters.max_tokens filters.truncated filters.train_constrained filters.whole_episodes sampling.stop sampling.chat_template_kwargs sampling.extra_body
	vision token_columns.top_logprobs token_columns.sampling_mask token_columns.required teachers.url teachers.model teachers.version teachers.hints agent.env agent.files agent.layer`)

// required are keys of sections of which Validate refuses the empty value: the section
// makes no sense without them.
var required = strings.Fields(`policy conversations.name conversations.endpoint.url endpoint endpoints.url teachers.name trackers.to scorer.effort.half scorer.judge.endpoint scorer.judge.model scorer.judge.rubric
	token_columns.routed_experts.layers token_columns.routed_experts.top_k token_columns.routed_experts.experts traffic.rate tools.add.name tools.add.description tools.add.command
	tools.servers.name tools.servers.command tools.servers.url tools.servers.tools.name environment.name environment.tools.name feeds.name feeds.groups_per_batch feeds.micro_batch.tokens
	shaping.soft_overlong.max_tokens shaping.soft_overlong.buffer filters.pass_rate.min filters.pass_rate.max feeds.filters.pass_rate.min feeds.filters.pass_rate.max`)

// TestEmptyValues: each key of a run file has an empty value that counts, is refused, or means what
// leaving it out means. A new key has to be one of them.
func TestEmptyValues(t *testing.T) {
	seen := map[string]bool{}
	keys(reflect.TypeFor[RunConfig](), reflect.ValueOf(DefaultRunConfig()),
		"", func(key string, f reflect.StructField, standard reflect.Value) {
			seen[key] = true
			absent, known := f.Tag.Get("absent"), slices.Contains(alike, key) || slices.Contains(required, key)
			section := f.Type.Kind() == reflect.Struct
			counts := f.Type.Kind() == reflect.Pointer || !standard.IsZero() // leaving it out is nil, or the default
			if (absent != "") == known && !section && !(absent == "" && counts) {
				t.Errorf("%s: say in the tag absent what leaving it out means, or in this test that its empty value means the same", key)
			}
			if absent == "" {
				return
			}
			text, _ := json.Marshal(reflect.Zero(f.Type).Interface())
			var zero any
			if err := json.Unmarshal(text, &zero); err != nil {
				t.Fatal(err)
			}
			for _, value := range []any{zero, nil} {
				standard := DefaultRunConfig()
				if err := CheckWritten(wrapped(key, value), &standard); err == nil ||
					!strings.Contains(err.Error(), absent) {
					t.Errorf("%s: %v is taken: %v", key, value, err)
				}
			}
		})
	for _, key := range append(alike, required...) {
		if !seen[key] {
			t.Errorf("no run file has the key %s", key)
		}
	}
}

// keys calls visit with each key of a run file, its field and its default.
func keys(t reflect.Type, standard reflect.Value, at string,
	visit func(key string, f reflect.StructField, standard reflect.Value)) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "-" {
			continue
		}
		key, value := strings.TrimPrefix(at+"."+name, "."), reflect.Zero(f.Type)
		if standard.IsValid() {
			value = standard.FieldByIndex(f.Index)
		}
		visit(key, f, value)
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner, value = inner.Elem(), reflect.Value{}
		}
		if inner.Kind() == reflect.Struct {
			keys(inner, value, key, visit)
		}
	}
}

// wrapped is a run file that says one key.
func wrapped(key string, value any) any {
	lists := map[string]bool{}
	keys(reflect.TypeFor[RunConfig](), reflect.Value{},
		"", func(key string, f reflect.StructField, _ reflect.Value) { lists[key] = f.Type.Kind() == reflect.Slice })
	parts := strings.Split(key, ".")
	for i := len(parts) - 1; i >= 0; i-- {
		value = map[string]any{parts[i]: value}
		if lists[strings.Join(parts[:i], ".")] {
			value = []any{value}
		}
	}
	return value
}

// TestOpeningSaysDefaults: whoever writes a run.opened by hand has to say each key whose default in
// a run file is not empty, as a missing one would be empty.
func TestOpeningSaysDefaults(t *testing.T) {
	text, err := json.Marshal(RunConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var said map[string]any
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	keys(reflect.TypeFor[RunConfig](), reflect.ValueOf(DefaultRunConfig()),
		"", func(key string, f reflect.StructField, standard reflect.Value) {
			if standard.IsZero() || key == "feeds" { // a run without feeds is refused unless it is an evaluation
				return
			}
			section, name, inside := strings.Cut(key, ".")
			at := said
			if inside {
				at, _ = said[section].(map[string]any)
			} else {
				name = section
			}
			if _, ok := at[name]; !ok {
				t.Errorf("%s may be left out of a run.opened, where it would be empty, and is %v by default in a run file",
					key, standard)
			}
		})
}
