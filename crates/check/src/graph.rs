//! Finds the strongly connected components of a graph that have a cycle, and short cycles in them.

use std::collections::VecDeque;

use petgraph::algo::kosaraju_scc;
use petgraph::graph::DiGraph;

use crate::edges::{Edge, Edges, INNER, Kinds};

/// A graph of some kinds of edges.
pub(crate) struct Graph<'a> {
    pub edges: &'a [Edge],
    txn_nodes: u32,
    /// Whether a transaction's two nodes are one, of the even number.
    collapsed: bool,
    /// Where a node's edges begin in `out`.
    first: Vec<u32>,
    /// Indexes of edges, by the nodes that they leave.
    out: Vec<u32>,
}

impl<'a> Graph<'a> {
    pub fn new(edges: &'a Edges, kinds: Kinds, collapsed: bool) -> Graph<'a> {
        let mut graph = Graph {
            edges: &edges.all,
            txn_nodes: edges.txn_nodes,
            collapsed,
            first: vec![0; edges.nodes as usize + 2],
            out: Vec::new(),
        };
        let chosen = |e: &&Edge| e.kind & kinds != 0 && !(collapsed && e.kind == INNER);
        // Counting sort: sums are shifted by one, so that filling moves each start into place.
        for edge in edges.all.iter().filter(chosen) {
            let from = graph.node(edge.from);
            graph.first[from as usize + 2] += 1;
        }
        let mut sum = 0;
        for count in &mut graph.first {
            sum += *count;
            *count = sum;
        }
        graph.out = vec![0; sum as usize];
        for (at, edge) in edges.all.iter().enumerate().filter(|(_, e)| chosen(e)) {
            let from = graph.node(edge.from) as usize;
            graph.out[graph.first[from + 1] as usize] = at as u32;
            graph.first[from + 1] += 1;
        }
        graph
    }

    fn node(&self, node: u32) -> u32 {
        if self.collapsed && node < self.txn_nodes { node & !1 } else { node }
    }

    pub fn from(&self, edge: u32) -> u32 {
        self.node(self.edges[edge as usize].from)
    }

    pub fn to(&self, edge: u32) -> u32 {
        self.node(self.edges[edge as usize].to)
    }

    /// Whether a node is a transaction's, not a barrier.
    pub fn is_txn(&self, node: u32) -> bool {
        node < self.txn_nodes
    }

    pub fn out(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.out[self.first[node] as usize..self.first[node + 1] as usize]
    }

    fn nodes(&self) -> u32 {
        self.first.len() as u32 - 2
    }

    /// The components that have cycles, smallest first.
    pub fn components(&self) -> Vec<Vec<u32>> {
        let left = self.without_beginnings();
        if left.is_empty() {
            return Vec::new();
        }
        let mut small = DiGraph::<u32, ()>::new();
        let mut place = vec![u32::MAX; self.nodes() as usize];
        for &node in &left {
            place[node as usize] = small.add_node(node).index() as u32;
        }
        for &node in &left {
            for &edge in self.out(node) {
                let to = place[self.to(edge) as usize];
                small.add_edge(place[node as usize].into(), to.into(), ());
            }
        }
        let mut components: Vec<Vec<u32>> = kosaraju_scc(&small)
            .into_iter()
            .filter(|component| component.len() > 1)
            .map(|component| component.into_iter().map(|node| small[node]).collect())
            .collect();
        components.iter_mut().for_each(|component| component.sort_unstable());
        components.sort_by_key(|component| (component.len(), component[0]));
        components
    }

    /// Nodes that are left when those without an edge towards them are taken away again and
    /// again: none in a graph without cycles.
    fn without_beginnings(&self) -> Vec<u32> {
        let mut incoming = vec![0_u32; self.nodes() as usize];
        for &edge in &self.out {
            incoming[self.to(edge) as usize] += 1;
        }
        let mut free: Vec<u32> =
            (0..self.nodes()).filter(|&node| incoming[node as usize] == 0).collect();
        while let Some(node) = free.pop() {
            for &edge in self.out(node) {
                let to = self.to(edge);
                incoming[to as usize] -= 1;
                if incoming[to as usize] == 0 {
                    free.push(to);
                }
            }
        }
        (0..self.nodes()).filter(|&node| incoming[node as usize] > 0).collect()
    }

    /// What an edge adds to the length of a cycle as a reader counts it.
    fn length(&self, edge: u32) -> u32 {
        let edge = &self.edges[edge as usize];
        u32::from(self.is_txn(edge.from) && edge.kind != INNER)
    }
}

/// Searches in one graph, again and again.
pub(crate) struct Search<'g, 'a> {
    graph: &'g Graph<'a>,
    /// The component of each node, 0 for none.
    component: Vec<u32>,
    /// The search that last reached, and settled, a node.
    reached: Vec<u32>,
    settled: Vec<u32>,
    /// By which edge a node was reached, and how far it is.
    by: Vec<u32>,
    far: Vec<u32>,
    searches: u32,
    /// Edges looked at so far.
    pub looked: u64,
}

const START: u32 = u32::MAX;

impl<'g, 'a> Search<'g, 'a> {
    pub fn new(graph: &'g Graph<'a>, components: &[Vec<u32>]) -> Search<'g, 'a> {
        let nodes = graph.nodes() as usize;
        let mut component = vec![0; nodes];
        for (number, nodes) in components.iter().enumerate() {
            nodes.iter().for_each(|&node| component[node as usize] = number as u32 + 1);
        }
        Search {
            graph,
            component,
            reached: vec![0; nodes],
            settled: vec![0; nodes],
            by: vec![START; nodes],
            far: vec![0; nodes],
            searches: 0,
            looked: 0,
        }
    }

    /// Whether both ends of an edge are in one component, so that a cycle has it.
    pub fn is_inside(&self, edge: u32) -> bool {
        let of = |node: u32| self.component[node as usize];
        of(self.graph.from(edge)) != 0 && of(self.graph.from(edge)) == of(self.graph.to(edge))
    }

    /// The shortest way that begins with one of these edges of one component and ends in `target`.
    pub fn path(&mut self, begin: &[u32], target: u32) -> Option<Vec<u32>> {
        self.searches += 1;
        let mut queue = VecDeque::new();
        for &edge in begin.iter().filter(|&&edge| self.is_inside(edge)).collect::<Vec<_>>() {
            self.reach(edge, 0, &mut queue);
        }
        while let Some(node) = queue.pop_front() {
            if node == target {
                return Some(self.way_to(node, begin));
            }
            if std::mem::replace(&mut self.settled[node as usize], self.searches) == self.searches {
                continue;
            }
            let graph = self.graph;
            for &edge in graph.out(node) {
                self.looked += 1;
                if self.is_inside(edge) {
                    self.reach(edge, self.far[node as usize] + graph.length(edge), &mut queue);
                }
            }
        }
        None
    }

    fn reach(&mut self, edge: u32, far: u32, queue: &mut VecDeque<u32>) {
        let to = self.graph.to(edge) as usize;
        if self.reached[to] == self.searches && self.far[to] <= far {
            return;
        }
        (self.reached[to], self.far[to], self.by[to]) = (self.searches, far, edge);
        if self.graph.length(edge) == 0 {
            queue.push_front(to as u32);
        } else {
            queue.push_back(to as u32);
        }
    }

    fn way_to(&self, target: u32, begin: &[u32]) -> Vec<u32> {
        let (mut way, mut node) = (Vec::new(), target);
        loop {
            let edge = self.by[node as usize];
            way.push(edge);
            if begin.contains(&edge) {
                way.reverse();
                return way;
            }
            node = self.graph.from(edge);
        }
    }
}
