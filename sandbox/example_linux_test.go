package sandbox_test

import (
	"context"
	"fmt"
	"log"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// A program runs in a sandbox, and its exit code and output come back. With AllowInsecure there is
// one also where the kernel refuses namespaces: leave it out for programs that you do not trust.
func Example() {
	ctx := context.Background()
	sb, err := sandbox.New(ctx, sandbox.Spec{Name: "example", AllowInsecure: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	if err := sb.WriteFile(ctx, "sum.sh", []byte("echo $((2 + 3))\nexit 7\n"), 0o755); err != nil {
		log.Fatal(err)
	}
	result, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"sh", "sum.sh"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d %s", result.ExitCode, result.Stdout)
	// Output:
	// 7 5
}

// A sandbox runs the tool calls that a model writes. A call that makes no sense gets
// an answer that says why.
func Example_tools() {
	ctx := context.Background()
	sb, err := sandbox.New(ctx, sandbox.Spec{Name: "example", AllowInsecure: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	set, err := tools.NewSet(toolset.Settings{Tools: toolset.Tooling{Set: toolset.Composer}})
	if err != nil {
		log.Fatal(err)
	}
	results, err := set.Run(ctx, tools.Work{Sandbox: sb, State: &toolset.State{}}, []tools.Call{
		{ID: "1", Name: "write", Arguments: `{"file_path":"a.txt","contents":"one\n"}`},
		{ID: "2", Name: "grep", Arguments: `{"pattern":"one"}`},
		{ID: "3", Name: "fly", Arguments: `{}`},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Println(r.Name, r.Error)
	}
	// Output:
	// write false
	// grep false
	// fly true
}
