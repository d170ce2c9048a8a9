package main

import (
	"go/ast"
	"strings"
)

// ownAdvice is for the methods of an own client.Client that cannot be rewritten.
const ownAdvice = "if this type is a client.Client, its methods change: docs/migrating.md, \"Your own client.Client\", has them"

// parameter is a parameter of a function. Its name is empty or "_" if the body cannot use it.
type parameter struct {
	name string
	kind ast.Expr
}

func (p parameter) used() bool { return p.name != "" && p.name != "_" }

func parametersOf(n *ast.FuncDecl) (list []parameter) {
	for _, field := range n.Type.Params.List {
		if len(field.Names) == 0 {
			list = append(list, parameter{"", field.Type})
		}
		for _, name := range field.Names {
			list = append(list, parameter{name.Name, field.Type})
		}
	}
	return list
}

// receiver returns the name of the type of a method.
func receiver(n *ast.FuncDecl) string {
	t := n.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// method rewrites the methods of a type that implements the interface of a client, or marks them.
func (r *rewriter) method(n *ast.FuncDecl) {
	if n.Recv == nil || n.Body == nil {
		return
	}
	list := parametersOf(n)
	of := func(i int) string { return typeKind(r.old, list[i].kind) }
	result := ""
	if n.Type.Results != nil && len(n.Type.Results.List) > 0 {
		result = typeKind(r.old, n.Type.Results.List[0].Type)
	}
	switch {
	case n.Name.Name == "RegisterCapacity" && len(list) == 3 && of(2) == "client.DelegateCapacity":
		r.ownCapacity(n, list)
	case n.Name.Name == "GetTaskEvents" && len(list) == 2 && result == "client.TaskEventsResponse":
		r.put(n.Name, "Poll")
		query := parameter{"_", nil}
		if list[0].name == "" {
			query.name = ""
		}
		r.putParameters(n, list, query, r.qualified("client.PollQuery"))
	case n.Name.Name == "Acquire" && len(list) == 3 && result == "client.Task":
		r.ownParameter(n, list, 2, "event", r.qualified("task.Event"), "TaskID", "")
	case n.Name.Name == "SendStatus" && len(list) == 4 && of(3) == "client.TaskResponse":
		r.ownRespond(n, list)
	case n.Name.Name == "SendRunnerStatus" && len(list) == 4 && of(3) == "client.RunnerTaskResponse" && !r.kinds.methods[receiver(n)+".SendStatus"]:
		r.mark(ownAdvice)
	}
}

// isOwnCapacity reports whether the current node is in the signature of a method that ownCapacity rewrites.
func (r *rewriter) isOwnCapacity() bool {
	for _, n := range r.path {
		if fn, ok := n.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Body != nil && fn.Name.Name == "RegisterCapacity" {
			list := parametersOf(fn)
			last := r.path[len(r.path)-1]
			return len(list) == 3 && last.Pos() >= fn.Type.Params.Pos() && last.End() <= fn.Type.Params.End()
		}
	}
	return false
}

// ownCapacity rewrites the method that reports the capacity: the struct becomes the number of stages.
func (r *rewriter) ownCapacity(n *ast.FuncDecl, list []parameter) {
	name := list[2].name
	fields := map[*ast.Ident]*ast.SelectorExpr{}
	ast.Inspect(n.Body, func(node ast.Node) bool {
		if s, ok := node.(*ast.SelectorExpr); ok && s.Sel.Name == "MaxBuilds" {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == name {
				fields[x] = s
			}
		}
		return true
	})
	if list[2].used() && len(mentionsOf(n.Body, name)) > len(fields) {
		r.mark(ownAdvice)
	}
	r.put(n.Name, "ReportCapacity")
	r.putKinds(n, list, []string{r.textOf(list[0].kind), r.textOf(list[1].kind), "int"})
	for _, field := range fields {
		r.put(field, name)
	}
}

// ownRespond rewrites the method that sends an answer. It calls SendRunnerStatus of the type for the tasks that need it.
func (r *rewriter) ownRespond(n *ast.FuncDecl, list []parameter) {
	r.mark("an own client.Client must retry temporary errors in Respond, and wrap client.ErrUnauthorized, ErrGone or ErrRetryable: docs/migrating.md, \"Your own client.Client\"")
	r.put(n.Name, "Respond")
	dispatch := ""
	if r.kinds.methods[receiver(n)+".SendRunnerStatus"] {
		self := ""
		if names := n.Recv.List[0].Names; len(names) == 1 {
			self = names[0].Name
		}
		if self == "" || self == "_" || !list[0].used() || !list[1].used() || !list[3].used() {
			r.mark("Respond must send the answers of tasks with RunnerResponse with SendRunnerStatus")
		} else {
			dispatch = "if @.RunnerResponse {\nreturn " + self + ".SendRunnerStatus(" + list[0].name + ", " + list[1].name + ", @.ID, " + list[3].name + ")\n}\n"
		}
	}
	r.ownParameter(n, list, 2, "acquired", "*"+r.qualified("task.Task"), "ID", dispatch)
}

// ownParameter replaces a parameter with an id by one that has the id in a field. The body begins with prolog, where "@"
// stands for the parameter, and then declares the id if it is used.
func (r *rewriter) ownParameter(n *ast.FuncDecl, list []parameter, at int, name, kind, field, prolog string) {
	for mentions(n, name) {
		name += "Now"
	}
	id := list[at].name
	if list[at].used() && mentions(n.Body, id) {
		prolog += id + " := @." + field + "\n"
	}
	kinds := make([]string, len(list))
	for i, p := range list {
		kinds[i] = r.textOf(p.kind)
	}
	kinds[at] = kind
	switch {
	case prolog != "":
		list[at].name = name
	case id != "":
		list[at].name = "_"
	}
	r.putKinds(n, list, kinds)
	if prolog != "" {
		begin := r.at(n.Body.Lbrace) + 1
		r.replace(begin, begin, "\n"+strings.ReplaceAll(prolog, "@", name))
	}
}

// putParameters adds a parameter at the end.
func (r *rewriter) putParameters(n *ast.FuncDecl, list []parameter, more parameter, kind string) {
	var kinds []string
	for _, p := range list {
		kinds = append(kinds, r.textOf(p.kind))
	}
	r.putKinds(n, append(list, more), append(kinds, kind))
}

// putKinds writes the parameters with their types.
func (r *rewriter) putKinds(n *ast.FuncDecl, list []parameter, kinds []string) {
	var texts []string
	for i, p := range list {
		texts = append(texts, strings.TrimSpace(p.name+" "+kinds[i]))
	}
	r.put(n.Type.Params, "("+strings.Join(texts, ", ")+")")
}
