package main

import (
	"go/ast"
	"go/token"
	"strings"
)

// visit rewrites a node whose parts are rewritten.
func (r *rewriter) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		r.selector(n)
	case *ast.CompositeLit:
		r.composite(n)
	case *ast.CallExpr:
		r.call(n)
	case *ast.BinaryExpr:
		r.comparison(n)
	case *ast.AssignStmt:
		r.statement(n)
	case *ast.FuncDecl:
		r.method(n)
	}
}

// oldName returns the upstream name that a selector stands for, such as client.Task.
func (r *rewriter) oldName(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok || !r.kinds.isPackage(r.old, x) {
		return ""
	}
	return r.old[x.Name] + "." + s.Sel.Name
}

func (r *rewriter) selector(n *ast.SelectorExpr) {
	if name := r.oldName(n); name != "" {
		r.nameOf(n, name)
		return
	}
	kind := r.kindOf(n.X)
	if kind == "" {
		return
	}
	field := n.Sel.Name
	switch renamed, isRenamed := newFields[kind][field]; {
	case kind == "client.RegisterResponse" && field == "Resource":
		r.put(n, r.textOf(n.X)) // the id is a field of the answer itself
	case isRenamed:
		r.put(n.Sel, renamed)
	case kind == "poller.Poller" && field == "Filter" && isNilComparison(r.parent()):
	case goneFields[kind][field] != "":
		r.mark(kind + " has no " + field + ": " + goneFields[kind][field])
	}
}

// nameOf rewrites a name of an upstream package.
func (r *rewriter) nameOf(n *ast.SelectorExpr, name string) {
	if call, ok := r.parent().(*ast.CallExpr); ok && call.Fun == n && rewritesCall(name) {
		return
	}
	if name == "client.DelegateCapacity" && (r.isCapacityArgument() || r.isOwnCapacity()) {
		return
	}
	switch name {
	case "poller.FilterFn":
		text := "func(*" + r.qualified("task.Event") + ") bool"
		if call, ok := r.parent().(*ast.CallExpr); ok && call.Fun == n {
			text = "(" + text + ")"
		}
		r.put(n, text)
		return
	case "delegate.TokenCache":
		r.helpers["accountTokens"] = true
		r.put(n, "accountTokens")
		return
	}
	renamed := newNames[name]
	switch {
	case renamed == "":
		text := advice[name]
		if text == "" {
			text = "docs/migrating.md has the counterparts of this package"
		}
		r.mark(name + " has no counterpart: " + text)
	case name == "router.Router":
		r.put(n, "*"+r.qualified(renamed)) // it was an interface
	default:
		r.put(n, r.qualified(renamed))
	}
}

// isCapacityArgument reports whether the current node is the type of an argument of RegisterCapacity.
func (r *rewriter) isCapacityArgument() bool {
	for i := len(r.path) - 2; i >= 0 && i >= len(r.path)-4; i-- {
		if call, ok := r.path[i].(*ast.CallExpr); ok {
			s, ok := call.Fun.(*ast.SelectorExpr)
			return ok && s.Sel.Name == "RegisterCapacity"
		}
	}
	return false
}

func (r *rewriter) composite(n *ast.CompositeLit) {
	kind := typeKind(r.old, n.Type)
	for _, e := range n.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := kv.Key.(*ast.Ident); ok {
			if renamed := newFields[kind][key.Name]; renamed != "" {
				r.put(key, renamed)
			}
		}
	}
}

func isNilComparison(n ast.Node) bool {
	b, ok := n.(*ast.BinaryExpr)
	if !ok || b.Op != token.EQL && b.Op != token.NEQ {
		return false
	}
	y, ok := b.Y.(*ast.Ident)
	return ok && y.Name == "nil"
}

// comparison rewrites p.Filter == nil.
func (r *rewriter) comparison(n *ast.BinaryExpr) {
	s, ok := n.X.(*ast.SelectorExpr)
	if ok && isNilComparison(n) && s.Sel.Name == "Filter" && r.kindOf(s.X) == "poller.Poller" {
		r.put(n, r.textOf(s.X)+".Health().Maintenance "+n.Op.String()+` ""`)
	}
}

// statement rewrites the construction of a client that is assigned: it may fail now.
func (r *rewriter) statement(n *ast.AssignStmt) {
	if len(n.Lhs) != 1 || len(n.Rhs) != 1 {
		return
	}
	call, ok := n.Rhs[0].(*ast.CallExpr)
	if !ok {
		return
	}
	name := r.oldName(call.Fun)
	if isNewClient(name, call) {
		r.checkedClient(n, r.newClient(name, call))
	}
}

// checkedClient returns the error of a new client from the function, or panics where the function
// returns no error.
func (r *rewriter) checkedClient(n *ast.AssignStmt, construction string) {
	zeros, ok := r.failure()
	left := r.textOf(n.Lhs[0])
	if !ok || !r.inBlock() {
		r.helpers["mustClient"] = true
		r.put(n, left+" "+n.Tok.String()+" mustClient("+construction+")")
		return
	}
	declared := ""
	if n.Tok == token.ASSIGN {
		declared = "var clientErr error\n"
	}
	r.put(n, declared+left+", clientErr "+n.Tok.String()+" "+construction+"\nif clientErr != nil {\nreturn "+zeros+"clientErr\n}")
}

// inBlock reports whether the current statement stands in a block, and not in the head of another.
func (r *rewriter) inBlock() bool {
	switch r.parent().(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
		return true
	}
	return false
}

// failure returns the results before the error with which the function around the current node
// fails. It returns false if its last result is no error.
func (r *rewriter) failure() (string, bool) {
	var results *ast.FieldList
	for _, n := range r.path {
		switch n := n.(type) {
		case *ast.FuncDecl:
			results = n.Type.Results
		case *ast.FuncLit:
			results = n.Type.Results
		}
	}
	if results == nil || len(results.List) == 0 {
		return "", false
	}
	last := results.List[len(results.List)-1]
	if name, ok := last.Type.(*ast.Ident); !ok || name.Name != "error" {
		return "", false
	}
	var b strings.Builder
	for i, field := range results.List {
		count := max(1, len(field.Names))
		if i == len(results.List)-1 {
			count--
		}
		for range count {
			b.WriteString(r.zero(field.Type) + ", ")
		}
	}
	return b.String(), true
}

// zero returns the zero value of a type.
func (r *rewriter) zero(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr, *ast.MapType, *ast.ArrayType, *ast.FuncType, *ast.ChanType, *ast.InterfaceType:
		if a, ok := e.(*ast.ArrayType); !ok || a.Len == nil {
			return "nil"
		}
	case *ast.Ident:
		switch e.Name {
		case "string":
			return `""`
		case "bool":
			return "false"
		case "error", "any":
			return "nil"
		case "int", "int64", "int32", "uint", "uint64", "float64":
			return "0"
		}
	}
	return "*new(" + r.textOf(e) + ")"
}
