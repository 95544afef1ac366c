package tools_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/tools"
)

// deterministic is what a task of these tests marks. That the one with /tmp/x is holds as long as
// only marked commands run.
var deterministic = []string{"cat a b d/a /tmp/x", "cat a; ls", "echo 9 > a", "cd d", "rm -f b; false"}

func command(line string) tools.Call {
	return tools.Call{Name: "run_terminal_cmd", Arguments: fmt.Sprintf(`{"command":%q}`, line)}
}

// TestDeterministicCommands: in random rollouts, what the cache answers to a marked command is what
// that answers where it is run, whatever other commands and file tools came before.
func TestDeterministicCommands(t *testing.T) {
	t.Parallel()
	const kinds = "00000011122233333345" // what unsettles is rare
	s, k := composer(t), &kept{answers: map[tools.Key]tools.Result{}}
	for seed := range uint64(9) {
		p, r := newPlayer(t), rand.New(rand.NewPCG(seed, 2))
		for range 6 {
			var calls []tools.Call
			for range r.IntN(3) {
				calls = append(calls, []tools.Call{
					{Name: "write", Arguments: fmt.Sprintf(`{"file_path":"a","contents":"%d\n"}`, r.IntN(2))},
					command(deterministic[2+r.IntN(3)]), command(deterministic[2+r.IntN(3)]), command(deterministic[0]),
					command(fmt.Sprintf("echo %d > /tmp/x", r.IntN(9))),
					{Name: "write", Arguments: fmt.Sprintf(`{"file_path":"/tmp/x","contents":"%d\n"}`, r.IntN(9))},
				}[kinds[r.IntN(len(kinds))]-'0'])
			}
			p.play(t, s, k, append(calls, command(deterministic[r.IntN(2)])))
		}
	}
	first := newPlayer(t)
	if _, results := first.run(t, s, k, []tools.Call{command("cat a; ls"),
		command("cat a; ls")}); results[0].Key == nil || results[1].Key == nil || *results[0].Key != *results[1].Key {
		t.Errorf("a command with which a rollout begins is not known to the next: %+v", results)
	}
	first.run(t, s, k, []tools.Call{command("cd d")})
	first.play(t, s, k, []tools.Call{command("cat a; ls")}) // of another folder
	t.Logf("%d answers kept, %d hits", len(k.answers), k.hits)
	if k.hits < 10 {
		t.Errorf("%d hits of %d kept answers: this shows little", k.hits, len(k.answers))
	}
}
