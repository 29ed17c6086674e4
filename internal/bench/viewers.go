package main

import "context"

func (b *bench) viewers(context.Context, *figures, *viewer, string, string) error { return nil }
