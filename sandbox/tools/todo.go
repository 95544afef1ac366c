package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

const (
	maxTodos    = 100
	maxTodoText = 1000 // bytes of an entry's content
	maxTodoID   = 64
	inProgress  = "in_progress"
)

var todoStatuses = []string{"pending", inProgress, "completed", "cancelled"}

type todoArguments struct {
	Merge bool   `json:"merge"`
	Todos []todo `json:"todos"`
}

// todo is an entry as a model writes it: what it leaves out stays as it was.
type todo struct {
	ID      string  `json:"id"`
	Content *string `json:"content"`
	Status  *string `json:"status"`
}

func todoWrite(_ context.Context, w *work, a todoArguments) (observation, error) {
	var list []toolset.Todo
	if a.Merge {
		list = slices.Clone(w.state.Todos)
	}
	if len(a.Todos) == 0 && a.Merge {
		return refusal("todos are missing"), nil
	}
	for _, entry := range a.Todos {
		at := slices.IndexFunc(list, func(t toolset.Todo) bool { return t.ID == entry.ID })
		if at < 0 {
			at = len(list)
			list = append(list, toolset.Todo{ID: entry.ID})
		} else if !a.Merge {
			return refusal("todos: the id %.64q stands twice", entry.ID), nil
		}
		if entry.Content != nil {
			list[at].Content = *entry.Content
		}
		if entry.Status != nil {
			list[at].Status = *entry.Status
		}
	}
	if why := wrongTodos(list); why != "" {
		return refusal("%s; the list is as it was", why), nil
	}
	w.state.Todos = list
	return observation{content: showTodos(list)}, nil
}

// wrongTodos says what is wrong with a list, "" for nothing.
func wrongTodos(list []toolset.Todo) string {
	if len(list) > maxTodos {
		return fmt.Sprintf("%d todos (limit %d)", len(list), maxTodos)
	}
	active := 0
	for _, t := range list {
		switch {
		case t.ID == "" || len(t.ID) > maxTodoID:
			return fmt.Sprintf("todos: an id of %d bytes (1 to %d)", len(t.ID), maxTodoID)
		case t.Content == "" || len(t.Content) > maxTodoText:
			return fmt.Sprintf("todos: %s: content of %d bytes (1 to %d)", t.ID, len(t.Content), maxTodoText)
		case !slices.Contains(todoStatuses, t.Status):
			return fmt.Sprintf("todos: %s: status %.40q (%s)", t.ID, t.Status, strings.Join(todoStatuses, ", "))
		case t.Status == inProgress:
			active++
		}
	}
	if active > 1 {
		return fmt.Sprintf("todos: %d are in_progress, where one at most may be", active)
	}
	return ""
}

func showTodos(list []toolset.Todo) string {
	if len(list) == 0 {
		return "The list is empty."
	}
	var out strings.Builder
	for _, t := range list {
		fmt.Fprintf(&out, "%s [%s] %s\n", t.ID, t.Status, t.Content)
	}
	return out.String()
}
