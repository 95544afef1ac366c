package main

import "errors"

var (
	errUnknown  = errors.New("no such item")
	errTooFew   = errors.New("not enough in stock")
	errReserved = errors.New("not that many reserved")
)

// item is what we know of one kind of goods.
type item struct {
	name     string
	onShelf  int
	reserved int
}

// free is how many can still be promised.
func (i *item) free() int {
	return i.onShelf + i.reserved
}

// ledger keeps the items in the order they first appeared.
type ledger struct {
	items []*item
}

func (l *ledger) find(name string) *item {
	for _, i := range l.items {
		if i.name == name {
			return i
		}
	}
	return nil
}

// add puts n on the shelf.
func (l *ledger) add(name string, n int) error {
	i := l.find(name)
	if i == nil {
		i = &item{name: name}
		l.items = append(l.items, i)
	}
	i.onShelf += n
	return nil
}

// reserve promises n to a customer.
func (l *ledger) reserve(name string, n int) error {
	i := l.find(name)
	if i == nil {
		return errUnknown
	}
	if n > i.free() {
		return errTooFew
	}
	i.reserved += n
	return nil
}

// release takes a promise back.
func (l *ledger) release(name string, n int) error {
	i := l.find(name)
	if i == nil {
		return errUnknown
	}
	if n > i.reserved {
		return errReserved
	}
	i.reserved -= n
	return nil
}

// ship sends n promised ones off.
func (l *ledger) ship(name string, n int) error {
	if err := l.release(name, n); err != nil {
		return err
	}
	l.find(name).onShelf -= n
	return nil
}
