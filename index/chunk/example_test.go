package chunk_test

import (
	"fmt"
	"log"

	"github.com/rondo-rl/rondo/index/chunk"
)

func ExampleSplit() {
	chunks, err := chunk.Split("add.go",
		[]byte("package add\n\n// Add adds.\nfunc Add(a, b int) int { return a + b }\n"))
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range chunks {
		fmt.Printf("lines %d to %d: %s\n", c.FirstLine, c.LastLine, c.Symbols)
	}
	// Output:
	// lines 1 to 4: Add
}
