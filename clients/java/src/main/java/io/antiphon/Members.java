package io.antiphon;

import java.util.List;
import java.util.Map;

/**
 * The cluster's present view.
 *
 * @param number rises with each primary view
 * @param nodes the elder first
 */
public record Members(String id, long number, boolean primary, List<Node> nodes) {
    /** The names of the nodes. */
    public List<String> names() {
        return nodes.stream().map(Node::name).toList();
    }

    /**
     * A node of the cluster.
     *
     * @param incarnation names one start of the node
     */
    public record Node(String name, String incarnation, String addr, Map<String, String> metadata) {}
}
